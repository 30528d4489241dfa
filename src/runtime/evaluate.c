/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - see evaluate.h. */
#include "runtime/evaluate.h"

#include "base/clock.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

/* Of preferences: what the model without its adapter says of the answers. */
static int refer(struct slot *sl, struct stage_batch b, const struct microbatch *mb, struct err *e)
{
	const struct prefer *loss = prefer_find(sl->stage->opt.prefer.name);
	if (!mb->pairs || !loss || !loss->reference)
		return 0;
	memset(mb->pairs->ref, 0, mb->nseq * sizeof *mb->pairs->ref);
	b.base = true;
	TRY(stage_begin(sl, &b, e));
	TRY(stage_forward(sl, e));
	memcpy(mb->pairs->ref, sl->pair, mb->nseq * sizeof *mb->pairs->ref);
	stage_end(sl);
	return 0;
}

static int evaluate_microbatch(struct slot *sl, const struct microbatch *mb, uint64_t index,
			       struct eval_result *r, double *sum, struct err *e)
{
	struct stage_batch b = runtime_batch(mb, index);
	b.pairs = mb->pairs;
	TRY(refer(sl, b, mb, e));
	TRY(stage_begin(sl, &b, e));
	TRY(stage_forward(sl, e));
	*sum += sl->loss;
	r->tokens += mb->n;
	r->sequences += mb->nseq;
	r->trained += mb->pairs ? mb->nrows : (uint64_t)sl->trained;
	r->right += sl->hits;
	for (int k = 0; k < 2; k++) {
		r->reward[k] += sl->score.reward[k];
		r->rewarded[k] += sl->score.rewarded[k];
	}
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
