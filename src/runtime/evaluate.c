/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - see evaluate.h. */
#include "runtime/evaluate.h"

#include "base/clock.h"
#include "base/err.h"

#include <math.h>

static int evaluate_microbatch(struct slot *sl, const struct microbatch *mb, uint64_t index,
			       struct eval_result *r, double *sum, struct err *e)
{
	const struct stage_batch b = { .microbatch = index,
				       .n = mb->n,
				       .nseq = mb->nseq,
				       .id = mb->id,
				       .pos = mb->pos,
				       .label = mb->label,
				       .start = mb->start };
	TRY(stage_begin(sl, &b, e));
	TRY(stage_forward(sl, e));
	*sum += sl->loss;
	r->tokens += mb->n;
	r->sequences += mb->nseq;
	r->trained += (uint64_t)sl->trained;
	stage_end(sl);
	return 0;
}

int evaluate_batches(struct runtime *r, struct batches *b, eval_part_fn part, void *ctx,
		     struct eval_result *res_p, struct err *e)
{
	struct eval_result res = { 0 };
	struct slot sl;
	double sum = 0;
	uint64_t all = batches_per_epoch(b, 0), index = 0;
	int64_t began = clock_now();
	int rc = 0;
	slot_init(&sl, &r->stage);
	for (uint64_t i = 0; i < all; i++) {
		const struct microbatch *mb;
		size_t n;
		TRYOUT(batches_get(b, 0, i, &mb, &n, e));
		for (size_t k = 0; k < n; k++)
			TRYOUT(evaluate_microbatch(&sl, &mb[k], index++, &res, &sum, e));
		res.loss = res.trained ? sum / (double)res.trained : NAN;
		res.seconds = clock_seconds(clock_now() - began);
		if (part && part(ctx, i + 1, all, &res)) {
			rc = err_set(e, ERR_CANCELLED, "stopped");
			goto out;
		}
	}
	*res_p = res;
out:
	slot_release(&sl);
	return rc;
}
