/* SPDX-License-Identifier: Apache-2.0 */
/* own_run.c - the forward pass through blocks of one's own. */
#include "model/own.h"

#include "base/err.h"
#include "base/rng.h"

void own_view(struct tensor *x, const struct own_shape *s)
{
	x->ndim = 1 + s->ndim;
	for (int i = 0; i < s->ndim; i++)
		x->dim[1 + i] = s->dim[i];
}

uint64_t own_noise_key(const struct own_run *r)
{
	uint64_t k = rng_fold(r->sl->stage->opt.seed, 0x6f776e64); /* "ownd" */
	k = rng_fold(k, r->sl->b.step);
	if (!r->sl->stage->opt.by_row)
		k = rng_fold(k, r->sl->b.microbatch);
	return rng_fold(k, (uint64_t)r->at);
}

int own_run_blocks(struct own_run *r, int first, int end, struct tensor *x, struct tensor **y_p,
		   struct err *e)
{
	for (int i = first; i < end; i += 1 + r->m->block[i].inside) {
		const struct own_block *b = &r->m->block[i];
		struct tensor *y = x;
		r->at = i;
		own_view(x, &b->in);
		const int rc = b->kind->forward(r, b, x, &y, e);
		if (rc < 0)
			return err_prefix(e, "block '%s'", b->kind->name);
		own_view(y, &b->out);
		x = y;
	}
	*y_p = x;
	return 0;
}
