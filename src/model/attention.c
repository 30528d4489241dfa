/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - see attention.h. */
#include "model/attention.h"
#include "model/block.h"
#include "model/latent.h"

#include "base/err.h"

#include <math.h>

int attention_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *a, struct tensor **o_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *part[3] /* q, k, v */, *gate = NULL;
	TRY(m->latent.kv ? latent_qkv(t, l, c, a, part, e) : block_qkv(t, l, c, a, part, &gate, e));
	for (int i = 0; i < 2 && c->kv; i++)
		TRY(block_append_kv(t, c, i, part[1 + i], &part[1 + i], e));
	TRY(op_attention_apply(t, part[0], part[1], part[2], l->sinks, c->starts, c->kstarts,
			       c->nseq, m->windowed[c->index] ? m->window : 0,
			       m->attn_scale > 0 ? (float)m->attn_scale
						 : 1.0f / sqrtf((float)layer_head_dim(m, c->index)),
			       (float)m->attn_cap, o_p, e));
	if (m->head_gate) {
		TRY(block_linear(t, l, c, LIN_HEAD_GATE, a, NULL, &gate, e));
		return op_head_glu_apply(t, gate, *o_p, o_p, e);
	}
	if (m->latent.kv && m->latent.value < m->head_dim)
		return op_cut_apply(t, *o_p, m->head_dim, m->latent.value, o_p, e);
	return gate ? op_glu_apply(t, gate, *o_p, o_p, e) : 0;
}
