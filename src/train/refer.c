/* SPDX-License-Identifier: Apache-2.0 */
/* refer.c - see refer.h. */
#include "train/refer.h"

#include "base/err.h"

int refer_each(struct rounds *p, uint32_t n, uint64_t step, size_t i,
	       int (*at)(void *ctx, uint32_t i, struct microbatch *mb_p, struct err *e), void *ctx,
	       struct err *e)
{
	const struct prefer *loss = prefer_find(session_job(p->ses)->opt.prefer.name);
	struct microbatch mb;
	double none;
	uint64_t no;
	if (!loss || !loss->reference)
		return 0;
	const struct prior *known = p->o.prior && p->o.prior->whole ? p->o.prior : NULL;
	for (uint32_t m = 0; known && m < n; m++) {
		TRY(at(ctx, m, &mb, e));
		TRY(references_place(&p->ref, true, m, &mb, e));
	}
	if (known)
		return prior_give(known, step, i, &p->ref, e);
	round_begin(p, ROUND_REFER, n, step, 1);
	for (uint32_t m = 0; m < n; m++) {
		TRY(at(ctx, m, &mb, e));
		TRY(round_send(p, m, &mb, e));
	}
	TRY(round_losses(p, &none, &no, e));
	return round_end(p, e);
}

static int from_list(void *ctx, uint32_t i, struct microbatch *mb_p, struct err *e)
{
	(void)e;
	*mb_p = (*(const struct microbatch *const *)ctx)[i];
	return 0;
}

int refer_all(struct rounds *p, const struct microbatch *mb, size_t n, uint64_t step, struct err *e)
{
	return refer_each(p, (uint32_t)n, step, 0, from_list, &mb, e);
}
