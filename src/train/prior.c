/* SPDX-License-Identifier: Apache-2.0 */
/* prior.c - see prior.h. */
#include "train/prior.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

void prior_release(struct prior *p)
{
	mem_free(p->v);
	mem_free(p->at);
	*p = (struct prior){ 0 };
}

int prior_add(struct prior *p, const struct references *r, struct err *e)
{
	const size_t n = r->n ? r->at[r->n] : 0, at = p->rounds ? p->at[p->rounds] : 0;
	if (!mem_grow(&p->v, &p->cap, at + n, sizeof *p->v) ||
	    !mem_grow(&p->at, &p->at_cap, p->rounds + 2, sizeof *p->at))
		return err_nomem(e, (at + n) * sizeof *p->v, "the reference of all answers");
	memcpy(p->v + at, r->v, n * sizeof *p->v);
	p->at[p->rounds++] = at;
	p->at[p->rounds] = at + n;
	return 0;
}

int prior_give(const struct prior *p, uint64_t step, size_t i, struct references *r, struct err *e)
{
	const uint64_t k = step ? p->evals + (step - 1 - p->first) : i;
	const size_t n = r->n ? r->at[r->n] : 0;
	if (k >= p->rounds || p->at[k + 1] - p->at[k] != n)
		return err_set(e, ERR_INTERNAL,
			       "the reference of step %llu, round %zu, is of other answers",
			       (unsigned long long)step, i);
	memcpy(r->v, p->v + p->at[k], n * sizeof *r->v);
	return 0;
}
