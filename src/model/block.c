/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - see block.h. */
#include "model/block.h"

#include "base/err.h"
#include "base/rng.h"

/* The key of a dropout mask. */
static uint64_t mask_key(const struct layer_context *c, enum linear site)
{
	uint64_t k = rng_fold(c->stage->opt.seed, 0x64726f70); /* "drop" */
	k = rng_fold(k, c->step);
	if (!c->stage->opt.by_row)
		k = rng_fold(k, c->microbatch);
	k = rng_fold(k, (uint64_t)c->index);
	return rng_fold(k, site);
}

int block_linear(struct tape *t, const struct layer *l, const struct layer_context *c,
		 enum linear i, struct tensor *x, struct tensor *residual, struct tensor **y_p,
		 struct err *e)
{
	struct lora lora = l->lin[i].lora;
	if (!c->train)
		lora.dropout = 0;
	lora.at = c->places;
	int rc = op_linear_apply(t, x, l->lin[i].w, l->lin[i].bias, &lora, mask_key(c, i), residual,
				 y_p, e);
	return rc < 0 ? err_prefix(e, "%s", linear_path(i)) : 0;
}

int block_norm(struct tape *t, const struct layer_context *c, struct param *w, struct tensor *x,
	       struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	*y_p = x;
	return w ? op_rmsnorm_apply(t, x, w, m->hidden, (float)m->norm_eps, y_p, e) : 0;
}

int block_add(struct tape *t, const struct layer *l, const struct layer_context *c, enum linear i,
	      struct tensor *x, enum layer_norm n, struct tensor *h, struct tensor **y_p,
	      struct err *e)
{
	const float factor = model_factor(c->stage->cfg.residual_scale);
	if (!l->norm[n] && factor == 1)
		return block_linear(t, l, c, i, x, h, y_p, e);
	TRY(block_linear(t, l, c, i, x, NULL, &x, e));
	TRY(block_norm(t, c, l->norm[n], x, &x, e));
	return op_add_apply(t, x, factor, h, y_p, e);
}

int block_heads(struct tape *t, const struct layer_context *c, struct tensor **x_p, int64_t n,
		struct param *w, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *x = *x_p;
	if (w && m->qk_norm_whole)
		TRY(op_rmsnorm_apply(t, x, w, n * m->head_dim, (float)m->norm_eps, &x, e));
	x->ndim = 3;
	x->dim[1] = n;
	x->dim[2] = m->head_dim;
	if (w && !m->qk_norm_whole)
		TRY(op_rmsnorm_apply(t, x, w, m->head_dim, (float)m->norm_eps, &x, e));
	*x_p = x;
	if (m->no_rope[c->index])
		return 0;
	return op_rope_apply(t, x, c->pos, DEV_REF(c->stage->inv_freq, 0), m->rope_scale, x_p, e);
}

int block_append_kv(struct tape *t, struct kv_cache *kv, int64_t layer, int which, struct tensor *x,
		    struct tensor **y_p, struct err *e)
{
	size_t row = (size_t)(x->dim[1] * x->dim[2]) * dtype_size(x->dtype),
	       all = row * (size_t)kv->cap;
	struct dev_ref at = DEV_REF(kv->kv, all * (size_t)(2 * layer + which));
	TRY(dev_copy(DEV_REF(at.buf, at.off + row * (size_t)kv->len), x->at,
		     row * (size_t)x->dim[0], e));
	int64_t dim[3] = { kv->len + x->dim[0], x->dim[1], x->dim[2] };
	return tape_tensor(t, x->dtype, 3, dim, at, y_p, e);
}
