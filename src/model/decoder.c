/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - one decoder layer, the same for every family:
 *
 *   a = norm(h);  q, k, v = a Wq, a Wk, a Wv [+ bias] [q, k normed];  rotate q, k
 *   h = h + attention(q, k, v) Wo;   m = norm(h);   h + (act(m Wgate) * m Wup) Wdown
 *
 * Where a family has norms behind the blocks, they are between Wo or Wdown and the sum; act is SiLU
 * or GELU; q, k, v may come from one product, and gate and up (block.c), or experts (experts.c).
 *
 * Shapes (tensor.h has the letters): h, a, m (N,C); q (N,H,D); k, v (N,G,D), with kept keys and
 * values (Nk,G,D). */
#include "model/block.h"
#include "model/experts.h"

#include "base/err.h"

#include <math.h>

/* y (N,C) = h + attention. */
static int attend(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *a, *part[3], *q, *k, *v, *o /* (N,H*D) */;
	TRY(block_norm(t, c, l->norm[NORM_ATTN_IN], h, &a, e));
	TRY(block_qkv(t, l, c, a, part, e));
	q = part[0];
	k = part[1];
	v = part[2];
	if (c->kv) {
		int64_t here = c->index - c->stage->opt.first;
		TRY(block_append_kv(t, c->kv, here, 0, k, &k, e));
		TRY(block_append_kv(t, c->kv, here, 1, v, &v, e));
	}
	TRY(op_attention_apply(t, q, k, v, l->sinks, c->starts, c->kstarts, c->nseq,
			       m->windowed[c->index] ? m->window : 0,
			       m->attn_scale > 0 ? (float)m->attn_scale
						 : 1.0f / sqrtf((float)m->head_dim),
			       (float)m->attn_cap, &o, e));
	return block_add(t, l, c, LIN_O, o, NORM_ATTN_OUT, h, y_p, e);
}

int decoder_route(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct err *e)
{
	struct tensor *a;
	TRY(attend(t, l, c, h, &h, e));
	TRY(block_norm(t, c, l->norm[NORM_MLP_IN], h, &a, e));
	return experts_route(t, l, c, a, h, w, e);
}

int decoder_layer(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	struct tensor *a;
	TRY(attend(t, l, c, h, &h, e));
	if (!layer_is_mixture(&c->stage->cfg, c->index))
		return block_mlp(t, l, c, h, y_p, e);
	TRY(block_norm(t, c, l->norm[NORM_MLP_IN], h, &a, e));
	return experts_apply(t, l, c, a, h, y_p, e);
}
