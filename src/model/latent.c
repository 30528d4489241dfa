/* SPDX-License-Identifier: Apache-2.0 */
/* latent.c - see latent.h. */
#include "model/latent.h"
#include "model/block.h"

#include "base/err.h"

static int norm(struct tape *t, const struct layer_context *c, struct param *w, struct tensor **x_p,
		struct err *e)
{
	return op_rmsnorm_apply(t, *x_p, w, (*x_p)->dim[1], (float)c->stage->cfg.latent.eps, 0,
				NULL, x_p, e);
}

static int queries(struct tape *t, const struct layer *l, const struct layer_context *c,
		   struct tensor *x, struct tensor **q_p, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	if (m->latent.q) {
		TRY(block_linear(t, l, c, LIN_Q_A, x, NULL, &x, e));
		TRY(norm(t, c, l->qnorm, &x, e));
	}
	TRY(block_linear(t, l, c, m->latent.q ? LIN_Q_B : LIN_Q, x, NULL, &x, e));
	block_view_heads(x, m->heads, m->head_dim);
	return block_rotate(t, c, x, m->latent.plain, q_p, e);
}

int latent_qkv(struct tape *t, const struct layer *l, const struct layer_context *c,
	       struct tensor *a, struct tensor *part[3], struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const int64_t plain = m->latent.plain, value = m->latent.value, both = plain + value;
	struct tensor *x, *turned /* (N,rot) */;
	TRY(queries(t, l, c, a, &part[0], e));
	TRY(block_linear(t, l, c, LIN_KV_A, a, NULL, &a, e));
	TRY(op_columns_apply(t, a, m->latent.kv + m->rot, 0, m->latent.kv, &x, e));
	TRY(op_columns_apply(t, a, m->latent.kv + m->rot, m->latent.kv, m->rot, &turned, e));
	TRY(norm(t, c, l->knorm, &x, e));
	TRY(block_linear(t, l, c, LIN_KV_B, x, NULL, &x, e));
	block_view_heads(turned, 1, m->rot);
	TRY(block_rotate(t, c, turned, 0, &turned, e));
	TRY(op_widen_apply(t, x, both, 0, plain, turned, m->head_dim, &part[1], e));
	return op_widen_apply(t, x, both, plain, value, NULL, m->head_dim, &part[2], e);
}
