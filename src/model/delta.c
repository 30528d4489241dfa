/* SPDX-License-Identifier: Apache-2.0 */
/* delta.c - see delta.h. */
#include "model/delta.h"
#include "model/block.h"

#include "base/err.h"

static size_t seen_bytes(const struct model_config *m, enum dtype act)
{
	const size_t n = (size_t)((m->delta_conv - 1) * delta_channels(m)) * dtype_size(act);
	return (n + 63) / 64 * 64;
}

size_t delta_kept_bytes(const struct model_config *m, enum dtype act)
{
	const struct delta_heads *h = &m->delta_heads;
	return seen_bytes(m, act) + (size_t)(h->values * h->dv * h->dk) * 4;
}

/* The last rows that the convolution saw, after those of x (N,width). */
static int keep_seen(struct tape *t, struct dev_ref seen, int64_t rows, const struct tensor *x,
		     struct err *e)
{
	const size_t row = (size_t)x->dim[1] * dtype_size(x->dtype);
	const int64_t n = x->dim[0];
	struct dev_ref all;
	if (rows < 1)
		return 0;
	if (n >= rows)
		return dev_copy(seen, DEV_REF(x->at.buf, x->at.off + (size_t)(n - rows) * row),
				(size_t)rows * row, e);
	TRY(dmem_take(t->scratch, (size_t)(rows + n) * row, &all, e));
	TRY(dev_copy(all, seen, (size_t)rows * row, e));
	TRY(dev_copy(DEV_REF(all.buf, all.off + (size_t)rows * row), x->at, (size_t)n * row, e));
	return dev_copy(seen, DEV_REF(all.buf, all.off + (size_t)n * row), (size_t)rows * row, e);
}

/* What the linear modules make of a (N,C): q, k and v side by side, z, b and a. */
struct parts {
	struct tensor *qkv, *z, *beta, *rate;
};

/* Of the two products of Qwen3-Next each key head has q, k, its v and its z, and its b and a. */
static int joined_parts(struct tape *t, const struct layer *l, const struct layer_context *c,
			struct tensor *a, struct parts *p, struct err *e)
{
	const struct delta_heads *h = &c->stage->cfg.delta_heads;
	const int64_t r = h->values / h->keys, wide = r * h->dv, all = 2 * (h->dk + wide);
	struct tensor *x, *q, *k, *v;
	TRY(block_linear(t, l, c, LIN_DELTA_QKVZ, a, NULL, &x, e));
	TRY(op_columns_apply(t, x, all, 0, h->dk, &q, e));
	TRY(op_columns_apply(t, x, all, h->dk, h->dk, &k, e));
	TRY(op_columns_apply(t, x, all, 2 * h->dk, wide, &v, e));
	TRY(op_columns_apply(t, x, all, 2 * h->dk + wide, wide, &p->z, e));
	TRY(op_concat_apply(t, q, k, &q, e));
	TRY(op_concat_apply(t, q, v, &p->qkv, e));
	TRY(block_linear(t, l, c, LIN_DELTA_BA, a, NULL, &x, e));
	TRY(op_columns_apply(t, x, 2 * r, 0, r, &p->beta, e));
	return op_columns_apply(t, x, 2 * r, r, r, &p->rate, e);
}

static int make_parts(struct tape *t, const struct layer *l, const struct layer_context *c,
		      struct tensor *a, struct parts *p, struct err *e)
{
	if (c->stage->cfg.delta_joined)
		return joined_parts(t, l, c, a, p, e);
	TRY(block_linear(t, l, c, LIN_DELTA_QKV, a, NULL, &p->qkv, e));
	TRY(block_linear(t, l, c, LIN_DELTA_Z, a, NULL, &p->z, e));
	TRY(block_linear(t, l, c, LIN_DELTA_B, a, NULL, &p->beta, e));
	return block_linear(t, l, c, LIN_DELTA_A, a, NULL, &p->rate, e);
}

/* x (N,C) through the layer's convolution, whose last rows are kept while text is generated. */
static int convolve(struct tape *t, const struct layer *l, const struct layer_context *c,
		    struct tensor *x, struct tensor **y_p, struct err *e)
{
	const struct dev_ref seen =
		c->kv ? DEV_REF(c->kv->kv, c->kv->at[c->index - c->stage->opt.first]) : DEV_NONE;
	TRY(op_conv1d_apply(t, x, l->delta[DELTA_CONV], c->pos, seen, y_p, e));
	return c->kv ? keep_seen(t, seen, c->stage->cfg.delta_conv - 1, x, e) : 0;
}

static int short_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
		     struct tensor *a, struct tensor **o_p, struct err *e)
{
	const int64_t wide = c->stage->cfg.hidden;
	struct tensor *all, *part[3], *y; /* b, c and x, side by side */
	TRY(block_linear(t, l, c, LIN_CONV_IN, a, NULL, &all, e));
	for (int i = 0; i < 3; i++)
		TRY(op_slice_apply(t, all, i * wide, wide, &part[i], e));
	TRY(op_mul_apply(t, part[0], part[2], &y, e));
	TRY(convolve(t, l, c, y, &y, e));
	return op_mul_apply(t, part[1], y, o_p, e);
}

int delta_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *a, struct tensor **o_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const struct delta_heads *h = &m->delta_heads;
	struct parts p;
	struct tensor *o;
	struct dev_ref state = DEV_NONE;
	if (m->lfm2)
		return short_mix(t, l, c, a, o_p, e);
	if (c->kv)
		state = DEV_REF(c->kv->kv, c->kv->at[c->index - c->stage->opt.first] +
						   seen_bytes(m, c->stage->opt.act));
	TRY(make_parts(t, l, c, a, &p, e));
	TRY(convolve(t, l, c, p.qkv, &p.qkv, e));
	TRY(op_act_apply(t, p.qkv, ACT_SILU, &p.qkv, e));
	TRY(op_delta_apply(t, p.qkv, p.rate, p.beta, l->delta[DELTA_DECAY], l->delta[DELTA_DT], h,
			   c->starts, c->nseq, state, &o, e));
	TRY(op_rmsnorm_apply(t, o, l->delta[DELTA_NORM], h->dv, (float)m->norm_eps, 0, NULL, &o,
			     e));
	o->ndim = 2;
	o->dim[1] = h->values * h->dv;
	return op_swiglu_apply(t, p.z, o, o_p, e);
}
