/* SPDX-License-Identifier: Apache-2.0 */
/* references.c - see references.h. */
#include "proto/references.h"

#include "base/err.h"
#include "base/mem.h"
#include "proto/pairs_wire.h"

#include <math.h>
#include <string.h>

void references_release(struct references *r)
{
	mem_free(r->v);
	mem_free(r->at);
	*r = (struct references){ 0 };
}

int references_place(struct references *r, bool ask, uint32_t m, const struct microbatch *mb,
		     struct err *e)
{
	if (!mb->pairs)
		return 0;
	if (!ask) {
		const bool known = m < r->n && r->at[m + 1] - r->at[m] == mb->nseq;
		for (uint32_t s = 0; s < mb->nseq; s++)
			mb->pairs->ref[s] = known ? r->v[r->at[m] + s] : 0;
		return 0;
	}
	const size_t at = m ? r->at[m] : 0;
	if (!mem_grow(&r->at, &r->at_cap, (size_t)m + 2, sizeof *r->at) ||
	    !mem_grow(&r->v, &r->cap, at + mb->nseq, sizeof *r->v))
		return err_nomem(e, (at + mb->nseq) * sizeof *r->v, "references");
	r->at[m] = at;
	r->at[m + 1] = at + mb->nseq;
	r->n = (size_t)m + 1;
	memset(mb->pairs->ref, 0, mb->nseq * sizeof *mb->pairs->ref);
	return 0;
}

int references_take(struct references *r, uint32_t m, const void *payload, size_t n, struct err *e)
{
	if (m >= r->n)
		return err_set(e, ERR_PROTOCOL, "REFERENCE of microbatch %u of %zu", m, r->n);
	const size_t count = r->at[m + 1] - r->at[m];
	const double *v = r->v + r->at[m];
	TRY(reference_read(payload, n, r->v + r->at[m], count, e));
	for (size_t s = 0; s < count; s++)
		if (!isfinite(v[s]))
			return err_set(e, ERR_INPUT,
				       "the model without its adapter gives sequence %zu of "
				       "microbatch %u the log-probability %g: its numbers are too "
				       "large for compute_dtype there, or not finite themselves; "
				       "choose another compute_dtype, or look at the data",
				       s, m, v[s]);
	return 0;
}
