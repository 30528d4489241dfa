/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - one decoder layer, the same for every family:
 *
 *   a = norm1(h);  q, k, v = a Wq, a Wk, a Wv [+ bias] [q, k normed per head];  rotate q, k
 *   h = h + attention(q, k, v) Wo;   m = norm2(h);   h + (silu(m Wgate) * m Wup) Wdown
 *
 * Shapes (tensor.h has the letters): h, a, m (N,C); q (N,H,D); k, v (N,G,D), with kept keys and
 * values (Nk,G,D); gate, up (N,F). */
#include "model/stage.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>

/* The key of a dropout mask. */
static uint64_t mask_key(const struct layer_context *c, enum linear site)
{
	uint64_t k = rng_fold(c->stage->opt.seed, 0x64726f70); /* "drop" */
	k = rng_fold(k, c->step);
	k = rng_fold(k, c->microbatch);
	k = rng_fold(k, (uint64_t)c->index);
	return rng_fold(k, site);
}

/* y (N,out) = x (N,in) Wi^T [+ bias] [+ residual (N,out)] [+ adapter]. */
static int linear(struct tape *t, const struct layer *l, const struct layer_context *c,
		  enum linear i, struct tensor *x, struct tensor *residual, struct tensor **y_p,
		  struct err *e)
{
	struct lora lora = l->lin[i].lora;
	if (!c->train)
		lora.dropout = 0;
	int rc = op_linear_apply(t, x, l->lin[i].w, l->lin[i].bias, &lora, mask_key(c, i), residual,
				 y_p, e);
	return rc < 0 ? err_prefix(e, "%s", linear_path(i)) : 0;
}

/* Views x (N,n*D) as (N,n,D), normalises each head where the family does so (norm (D)), rotates. */
static int split_heads(struct tape *t, const struct layer_context *c, struct tensor **x_p,
		       int64_t n, struct param *norm, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *x = *x_p;
	x->ndim = 3;
	x->dim[1] = n;
	x->dim[2] = m->head_dim;
	if (norm)
		TRY(op_rmsnorm_apply(t, x, norm, m->head_dim, (float)m->norm_eps, &x, e));
	return op_rope_apply(t, x, c->pos, DEV_REF(c->stage->inv_freq, 0), m->rope_scale, x_p, e);
}

/* Appends the new keys (which 0) or values (1), x (N,G,D), to the kept ones: y (Nk,G,D) is all
 * of them. */
static int append_kv(struct tape *t, struct kv_cache *kv, int64_t layer, int which,
		     struct tensor *x, struct tensor **y_p, struct err *e)
{
	size_t row = (size_t)(x->dim[1] * x->dim[2]) * dtype_size(x->dtype),
	       all = row * (size_t)kv->cap;
	struct dev_ref at = DEV_REF(kv->kv, all * (size_t)(2 * layer + which));
	TRY(dev_copy(DEV_REF(at.buf, at.off + row * (size_t)kv->len), x->at,
		     row * (size_t)x->dim[0], e));
	int64_t dim[3] = { kv->len + x->dim[0], x->dim[1], x->dim[2] };
	return tape_tensor(t, x->dtype, 3, dim, at, y_p, e);
}

int decoder_layer(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *a, *q, *k, *v, *o /* (N,H*D) */, *gate, *up, *act /* (N,F) */;
	TRY(op_rmsnorm_apply(t, h, l->norm1, m->hidden, (float)m->norm_eps, &a, e));
	TRY(linear(t, l, c, LIN_Q, a, NULL, &q, e));
	TRY(linear(t, l, c, LIN_K, a, NULL, &k, e));
	TRY(linear(t, l, c, LIN_V, a, NULL, &v, e));
	TRY(split_heads(t, c, &q, m->heads, l->qnorm, e));
	TRY(split_heads(t, c, &k, m->kv_heads, l->knorm, e));
	v->ndim = 3; /* (N,G,D) */
	v->dim[1] = m->kv_heads;
	v->dim[2] = m->head_dim;
	if (c->kv) {
		int64_t here = c->index - c->stage->opt.first;
		TRY(append_kv(t, c->kv, here, 0, k, &k, e));
		TRY(append_kv(t, c->kv, here, 1, v, &v, e));
	}
	TRY(op_attention_apply(t, q, k, v, c->starts, c->kstarts, c->nseq,
			       m->windowed[c->index] ? m->window : 0,
			       1.0f / sqrtf((float)m->head_dim), &o, e));
	TRY(linear(t, l, c, LIN_O, o, h, &h, e));
	TRY(op_rmsnorm_apply(t, h, l->norm2, m->hidden, (float)m->norm_eps, &a, e));
	TRY(linear(t, l, c, LIN_GATE, a, NULL, &gate, e));
	TRY(linear(t, l, c, LIN_UP, a, NULL, &up, e));
	TRY(op_swiglu_apply(t, gate, up, &act, e));
	return linear(t, l, c, LIN_DOWN, act, h, y_p, e);
}
