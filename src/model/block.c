/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - see block.h. */
#include "model/block.h"

#include "base/err.h"
#include "base/rng.h"
#include "model/rope.h"

#include <string.h>

uint64_t block_mask_key(const struct layer_context *c, enum linear site)
{
	uint64_t k = rng_fold(c->stage->opt.seed, 0x64726f70); /* "drop" */
	k = rng_fold(k, c->step);
	if (!c->stage->opt.by_row)
		k = rng_fold(k, c->microbatch);
	k = rng_fold(k, (uint64_t)c->index);
	return rng_fold(k, site);
}

static struct lora adapter_of(const struct layer *l, const struct layer_context *c, enum linear i)
{
	struct lora lora = l->lin[i].lora;
	if (!c->train)
		lora.dropout = 0;
	lora.at = c->places;
	return c->base ? (struct lora){ 0 } : lora;
}

int block_linear(struct tape *t, const struct layer *l, const struct layer_context *c,
		 enum linear i, struct tensor *x, struct tensor *residual, struct tensor **y_p,
		 struct err *e)
{
	const struct lora lora = adapter_of(l, c, i);
	int rc = op_linear_apply(t, x, l->lin[i].w, l->lin[i].bias, &lora, block_mask_key(c, i),
				 residual, y_p, e);
	return rc < 0 ? err_prefix(e, "%s", linear_path(i)) : 0;
}

bool block_joins(const struct layer *l, const enum linear *i, int n)
{
	const struct param *first = l->lin[i[0]].w;
	for (int k = 0; k < n; k++) {
		const struct linear_part *p = &l->lin[i[k]];
		if (!p->w || p->w->away || p->w->trainable || p->bias || p->lora.m ||
		    p->w->w.kind != first->w.kind || p->w->w.dtype != first->w.dtype)
			return false;
	}
	return true;
}

/* y (N, sum of out): linear layers `which` of x (N,in), side by side. */
static int joined(struct tape *t, const struct layer *l, const struct layer_context *c,
		  const enum linear *which, int n, struct tensor *x, struct tensor **y_p,
		  struct err *e)
{
	struct joined_linear j = { .n = n };
	for (int k = 0; k < n; k++) {
		j.part[k] = (struct linear_part){ .w = l->lin[which[k]].w,
						  .lora = adapter_of(l, c, which[k]) };
		j.key[k] = block_mask_key(c, which[k]);
	}
	int rc = op_joined_apply(t, x, &j, y_p, e);
	return rc < 0 ? err_prefix(e, "%s and others", linear_path(which[0])) : 0;
}

int block_norm(struct tape *t, const struct layer_context *c, struct param *w, struct tensor *x,
	       struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	*y_p = x;
	return w ? op_rmsnorm_apply(t, x, w, m->hidden, (float)m->norm_eps, m->norm_plus, NULL, y_p,
				    e)
		 : 0;
}

int block_add(struct tape *t, const struct layer *l, const struct layer_context *c, enum linear i,
	      struct tensor *x, enum layer_norm n, struct tensor *h, struct tensor **y_p,
	      struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const float factor = model_factor(m->residual_scale);
	if (!l->norm[n] && factor == 1)
		return block_linear(t, l, c, i, x, h, y_p, e);
	TRY(block_linear(t, l, c, i, x, NULL, &x, e));
	if (l->norm[n] && factor == 1)
		return op_rmsnorm_apply(t, x, l->norm[n], m->hidden, (float)m->norm_eps,
					m->norm_plus, h, y_p, e);
	TRY(block_norm(t, c, l->norm[n], x, &x, e));
	return op_add_apply(t, x, factor, h, y_p, e);
}

void block_view_heads(struct tensor *x, int64_t n, int64_t d)
{
	x->ndim = 3;
	x->dim[1] = n;
	x->dim[2] = d;
}

int block_rotate(struct tape *t, const struct layer_context *c, struct tensor *x, int64_t from,
		 struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const uint8_t table = m->rope_table[c->index];
	struct rope r = { .pos = c->pos,
			  .freq = DEV_REF(c->stage->inv_freq, table * sizeof m->inv_freq[0]),
			  .scale = m->rope_scale[table],
			  .rot = m->rot,
			  .near = m->rope_near,
			  .from = from };
	if (c->rope.table.buf && table == 0) {
		r.freq = c->rope.freq;
		r.table = c->rope.table;
	}
	return op_rope_apply(t, x, &r, y_p, e);
}

/* Views x (N,n*D) as (N,n,D), normalises it where the family does so (w), rotates. */
static int heads(struct tape *t, const struct layer_context *c, struct tensor **x_p, int64_t n,
		 struct param *w, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const int64_t d = layer_head_dim(m, c->index);
	struct tensor *x = *x_p;
	if (w && m->qk_norm_whole)
		TRY(op_rmsnorm_apply(t, x, w, n * d, (float)m->norm_eps, m->norm_plus, NULL, &x,
				     e));
	block_view_heads(x, n, d);
	if (w && !m->qk_norm_whole)
		TRY(op_rmsnorm_apply(t, x, w, d, (float)m->norm_eps, m->norm_plus, NULL, &x, e));
	*x_p = x;
	return m->no_rope[c->index] ? 0 : block_rotate(t, c, x, 0, x_p, e);
}

/* Table 0 for sequences up to the limit, then one for each that is longer. */
int rope_upload(const struct model_config *m, const int32_t *start, int64_t nseq, int64_t most,
		struct dmem *mem, struct arena *host, struct rope_long *r_p, struct err *e)
{
	const int64_t n = start[nseq], half = m->rot / 2;
	int64_t tables = 1;
	*r_p = (struct rope_long){ DEV_NONE, DEV_NONE };
	for (int64_t i = 0; m->rope_limit && i < nseq; i++)
		tables += start[i + 1] - start[i] > m->rope_limit || most > m->rope_limit;
	if (tables == 1)
		return 0;
	float *freq = arena_alloc(host, (size_t)(tables * half) * sizeof *freq);
	int32_t *table = arena_alloc(host, (size_t)n * sizeof *table);
	if (!freq || !table)
		return err_nomem(e, (size_t)(tables * half + n) * 4, "rotary frequencies");
	memcpy(freq, m->inv_freq[0], (size_t)half * sizeof *freq);
	for (int64_t i = 0, k = 1; i < nseq; i++) {
		int64_t length = start[i + 1] - start[i];
		length = length > most ? length : most;
		const bool own = length > m->rope_limit;
		for (int32_t j = start[i]; j < start[i + 1]; j++)
			table[j] = own ? (int32_t)k : 0;
		if (own)
			rope_long(m, length, freq + k++ * half);
	}
	TRY(dmem_take(mem, (size_t)(tables * half) * 4, &r_p->freq, e));
	TRY(dev_upload(r_p->freq, freq, (size_t)(tables * half) * 4, e));
	TRY(dmem_take(mem, (size_t)n * 4, &r_p->table, e));
	return dev_upload(r_p->table, table, (size_t)n * 4, e);
}

/* q, k and v where they lie in `all` (N, (H+2G)*D); q and k are rotated as one. */
static int slice_qkv(struct tape *t, const struct layer_context *c, struct tensor *all,
		     struct tensor *part[3], struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const int64_t d = layer_head_dim(m, c->index), g = layer_kv_heads(m, c->index),
		      q = m->heads * d, kv = g * d;
	struct tensor *qk;
	TRY(op_slice_apply(t, all, 0, q + kv, &qk, e));
	TRY(heads(t, c, &qk, m->heads + g, NULL, e));
	TRY(op_slice_apply(t, qk, 0, q, &part[0], e));
	TRY(op_slice_apply(t, qk, q, kv, &part[1], e));
	TRY(op_slice_apply(t, all, q + kv, kv, &part[2], e));
	for (int i = 0; i < 3; i++)
		block_view_heads(part[i], i ? g : m->heads, d);
	return 0;
}

/* q (N,H*D), k and v (N,G*D), or `all` of them side by side. */
static int make_qkv(struct tape *t, const struct layer *l, const struct layer_context *c,
		    struct tensor *x, struct tensor *part[3], struct tensor **all_p, struct err *e)
{
	static const enum linear which[] = { LIN_Q, LIN_K, LIN_V };
	*all_p = NULL;
	if (c->stage->cfg.fused_qkv)
		return block_linear(t, l, c, LIN_QKV, x, NULL, all_p, e);
	if (!c->stage->cfg.qk_norm && !c->kv && block_joins(l, which, 3))
		return joined(t, l, c, which, 3, x, all_p, e);
	for (int i = 0; i < 3; i++)
		if (l->lin[which[i]].w)
			TRY(block_linear(t, l, c, which[i], x, NULL, &part[i], e));
		else /* v is k */
			part[i] = part[i - 1];
	return 0;
}

int block_qkv(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *x, struct tensor *part[3], struct tensor **gate_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const int64_t d = layer_head_dim(m, c->index), g = layer_kv_heads(m, c->index),
		      q = m->heads * d, kv = g * d;
	struct tensor *all, *both;
	TRY(make_qkv(t, l, c, x, part, &all, e));
	*gate_p = NULL;
	if (m->attn_gate) {
		both = part[0];
		TRY(op_columns_apply(t, both, 2 * d, d, d, gate_p, e));
		TRY(op_columns_apply(t, both, 2 * d, 0, d, &part[0], e));
	}
	if (all && !m->qk_norm && !c->kv)
		return slice_qkv(t, c, all, part, e);
	for (int i = 0; i < 3 && all; i++)
		TRY(op_columns_apply(t, all, q + 2 * kv, i ? q + (i - 1) * kv : 0, i ? kv : q,
				     &part[i], e));
	block_view_heads(part[2], g, d);
	if (m->v_norm) /* before k, which may be the same, is normed and rotated */
		TRY(op_rmsnorm_apply(t, part[2], &c->stage->ones, d, (float)m->norm_eps, 0, NULL,
				     &part[2], e));
	TRY(heads(t, c, &part[0], m->heads, l->qnorm, e));
	return heads(t, c, &part[1], g, l->knorm, e);
}

/* Whether backward reads the input of linear layer i. */
static bool reads_input(const struct layer *l, const struct layer_context *c, enum linear i)
{
	return l->lin[i].w->trainable || (l->lin[i].lora.a && !c->base);
}

/* y (N,F) = act(x Wgate) * x Wup. */
static int gate_up(struct tape *t, const struct layer *l, const struct layer_context *c,
		   struct tensor *x, struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const enum linear which[] = { linear_as(m, LIN_GATE), linear_as(m, LIN_UP) };
	struct tensor *gate, *up, *all = NULL;
	struct dmem *out = t->out;
	t->out = NULL;
	if (m->fused_gate_up) {
		TRY(block_linear(t, l, c, linear_as(m, LIN_GATE_UP), x, NULL, &all, e));
	} else if (block_joins(l, which, 2)) {
		TRY(joined(t, l, c, which, 2, x, &all, e));
	} else {
		TRY(block_linear(t, l, c, which[0], x, NULL, &gate, e));
		TRY(block_linear(t, l, c, which[1], x, NULL, &up, e));
	}
	if (all) {
		const int64_t each = all->dim[1] / 2;
		TRY(op_slice_apply(t, all, 0, each, &gate, e));
		TRY(op_slice_apply(t, all, each, each, &up, e));
	}
	t->out = out;
	return m->gelu ? op_geglu_apply(t, gate, up, y_p, e) : op_swiglu_apply(t, gate, up, y_p, e);
}

int block_mlp(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *h, enum layer_norm n, struct tensor *residual, struct tensor **y_p,
	      struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const enum linear out = linear_as(m, LIN_DOWN);
	const bool fused = m->fused_gate_up, apart = t->record && t->mem != t->scratch,
		   in = fused ? reads_input(l, c, linear_as(m, LIN_GATE_UP))
			      : reads_input(l, c, linear_as(m, LIN_GATE)) ||
					reads_input(l, c, linear_as(m, LIN_UP)),
		   down = reads_input(l, c, out);
	struct tensor *a, *act /* (N,F) */;
	struct dmem_mark k = dmem_mark(t->scratch);
	t->out = apart && !in ? t->scratch : NULL;
	TRY(block_norm(t, c, l->norm[NORM_MLP_IN], h, &a, e));
	t->out = apart && !down ? t->scratch : NULL;
	TRY(gate_up(t, l, c, a, &act, e));
	t->out = NULL;
	TRY(block_add(t, l, c, out, act, n, residual, y_p, e));
	if (apart)
		dmem_back(t->scratch, k);
	return 0;
}

int block_scale(struct tape *t, const struct layer *l, struct tensor *x, struct tensor **y_p,
		struct err *e)
{
	*y_p = x;
	return l->scalar ? op_add_apply(t, x, l->scale, NULL, y_p, e) : 0;
}

int block_append_kv(struct tape *t, const struct layer_context *c, int which, struct tensor *x,
		    struct tensor **y_p, struct err *e)
{
	const struct kv_cache *kv = c->kv;
	const size_t row = (size_t)(x->dim[1] * x->dim[2]) * dtype_size(x->dtype),
		     at = kv->at[c->index - c->stage->opt.first] +
			  (which ? row * (size_t)kv->cap : 0);
	TRY(dev_copy(DEV_REF(kv->kv, at + row * (size_t)kv->len), x->at, row * (size_t)x->dim[0],
		     e));
	int64_t dim[3] = { kv->len + x->dim[0], x->dim[1], x->dim[2] };
	return tape_tensor(t, x->dtype, 3, dim, DEV_REF(kv->kv, at), y_p, e);
}
