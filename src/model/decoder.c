/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - one decoder layer, the same for every family:
 *
 *   a = norm(h);  q, k, v = a Wq, a Wk, a Wv [+ bias] [q, k normed];  rotate q, k
 *   h = h + attention(q, k, v) Wo;   m = norm(h);   h + (act(m Wgate) * m Wup) Wdown
 *
 * Where a family has norms behind the blocks, they are between Wo or Wdown and the sum; act is SiLU
 * or GELU; q, k, v may come from one product, and gate and up (block.c), or experts (experts.c).
 * attention() is in attention.c; layers of some families have something else instead (delta.c),
 * or an MLP and experts side by side.
 *
 * Shapes (tensor.h has the letters): h, a, m (N,C); q (N,H,D); k, v (N,G,D), with kept keys and
 * values (Nk,G,D). */
#include "model/attention.h"
#include "model/block.h"
#include "model/delta.h"
#include "model/experts.h"

#include "base/err.h"

/* y (N,C) = h + attention. */
static int attend(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *a, *o;
	TRY(block_norm(t, c, l->norm[NORM_ATTN_IN], h, &a, e));
	TRY(m->delta[c->index] ? delta_mix(t, l, c, a, &o, e) : attention_mix(t, l, c, a, &o, e));
	return block_add(t, l, c, layer_out(m, c->index), o, NORM_ATTN_OUT, h, y_p, e);
}

int decoder_route(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct err *e)
{
	TRY(attend(t, l, c, h, &h, e));
	return experts_route(t, l, c, h, w, e);
}

int decoder_layer(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	TRY(attend(t, l, c, h, &h, e));
	if (layer_is_mixture(&c->stage->cfg, c->index))
		return experts_apply(t, l, c, h, y_p, e);
	TRY(block_mlp(t, l, c, h, NORM_MLP_OUT, h, &h, e));
	return block_scale(t, l, h, y_p, e);
}
