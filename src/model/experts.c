/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - see experts.h. A token's rows go to its experts and come back without a capacity:
 * nothing is padded, nothing dropped (tensor/routing.h). */
#include "model/experts.h"

#include "base/err.h"

#include <math.h>

/* Module `l` of all experts on x (M,in). */
static int grouped(struct tape *t, const struct layer *l, const struct layer_context *c,
		   enum linear i, struct tensor *x, const struct routing *r, struct tensor **y_p,
		   struct err *e)
{
	const struct grouped g = { .expert = l->experts[i],
				   .adapters = !c->base,
				   .dropout = c->train ? c->stage->opt.lora.dropout : 0,
				   .key = block_mask_key(c, i),
				   .at = c->places };
	int rc = op_grouped_apply(t, x, r, &g, y_p, e);
	return rc < 0 ? err_prefix(e, "%s", linear_path(i)) : 0;
}

/* y (N,C) = h + the expert that every token has, of x (N,C). A share of it, where the family has
 * one, is the weight of the only expert of a router by sigmoid. */
static int shared(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *x, struct tensor *h, struct tensor **y_p, struct err *e)
{
	const bool gated = c->stage->cfg.shared_gated;
	struct tensor *gate /* (N,shared) */, *up, *score /* (N,1) */, *weight;
	struct routing *r;
	TRY(block_linear(t, l, c, gated ? LIN_SHARED_GATE : LIN_SHARED_GATES, x, NULL, &gate, e));
	TRY(block_linear(t, l, c, gated ? LIN_SHARED_UP : LIN_SHARED_UPS, x, NULL, &up, e));
	TRY(op_swiglu_apply(t, gate, up, &gate, e));
	if (!gated)
		return block_linear(t, l, c, LIN_SHARED_DOWNS, gate, h, y_p, e);
	TRY(block_linear(t, l, c, LIN_SHARED_DOWN, gate, NULL, &up, e));
	TRY(block_linear(t, l, c, LIN_SHARED_SCORE, x, NULL, &score, e));
	TRY(op_route_apply(t, score, &(struct router){ .k = 1, .sigmoid = true }, &r, &weight, e));
	return op_unpermute_apply(t, up, weight, h, r, y_p, e);
}

/* By expert_names: the router, then an expert's gate, up and down. */
static const enum linear modules[][4] = {
	[EXPERTS_MLP] = { LIN_ROUTER, LIN_EXPERT_GATE, LIN_EXPERT_UP, LIN_EXPERT_DOWN },
	[EXPERTS_SPARSE] = { LIN_SPARSE_ROUTER, LIN_SPARSE_W1, LIN_SPARSE_W3, LIN_SPARSE_W2 },
	[EXPERTS_OSS] = { LIN_OSS_ROUTER, LIN_EXPERT_GATE, LIN_EXPERT_UP, LIN_EXPERT_DOWN },
	[EXPERTS_SIDE] = { LIN_SIDE_ROUTER, LIN_SIDE_GATE, LIN_SIDE_UP, LIN_SIDE_DOWN },
	[EXPERTS_FF] = { LIN_FF_ROUTER, LIN_FF_EXPERT_GATE, LIN_FF_EXPERT_UP, LIN_FF_EXPERT_DOWN },
};

/* The MLP beside the experts, and of h (N,C) what these and the router read (N,C). */
static int beside(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct tensor **x_p,
		  struct tensor **router_p, struct err *e)
{
	struct tensor *r;
	TRY(block_mlp(t, l, c, h, NORM_SIDE_MLP, NULL, &w->mlp, e));
	TRY(block_norm(t, c, l->router[ROUTER_NORM], h, &r, e));
	TRY(op_add_apply(t, r, 1 / sqrtf((float)c->stage->cfg.hidden), NULL, router_p, e));
	return block_norm(t, c, l->norm[NORM_SIDE_IN], h, x_p, e);
}

int experts_route(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct expert_rows *w, struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *x, *in /* of the router */, *logits /* (N,E) */;
	const struct router how = { .k = m->top_k,
				    .whole = m->experts_whole,
				    .sigmoid = m->router_sigmoid,
				    .scale = (float)m->routed_scale,
				    .bias = l->correction,
				    .sums = c->sums,
				    .count = c->count };
	*w = (struct expert_rows){ .h = h };
	if (m->beside) {
		TRY(beside(t, l, c, h, w, &x, &in, e));
	} else {
		TRY(block_norm(t, c, l->norm[NORM_MLP_IN], h, &x, e));
		in = x;
	}
	if (m->shared)
		TRY(shared(t, l, c, x, h, &w->h, e));
	TRY(block_linear(t, l, c, modules[m->expert_names][0], in, NULL, &logits, e));
	TRY(op_route_apply(t, logits, &how, &w->r, &w->weight, e));
	if (m->beside)
		TRY(op_route_scale_apply(t, w->weight, l->router[ROUTER_SCALES], w->r, &w->weight,
					 e));
	return op_permute_apply(t, x, w->r, &w->rows, e);
}

int experts_compute(struct tape *t, const struct layer *l, const struct layer_context *c,
		    struct tensor *rows, const struct routing *r, struct tensor **y_p,
		    struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	const enum linear *which = modules[m->expert_names];
	struct tensor *gate /* (M,F) */, *up;
	TRY(grouped(t, l, c, which[1], rows, r, &gate, e));
	TRY(grouped(t, l, c, which[2], rows, r, &up, e));
	if (m->swiglu_limit > 0)
		TRY(op_swiglu_oss_apply(t, gate, up, (float)m->swiglu_alpha, (float)m->swiglu_limit,
					&gate, e));
	else
		TRY((m->gelu ? op_geglu_apply : op_swiglu_apply)(t, gate, up, &gate, e));
	return grouped(t, l, c, which[3], gate, r, y_p, e);
}

int experts_combine(struct tape *t, const struct layer *l, const struct layer_context *c,
		    const struct expert_rows *w, struct tensor *rows, struct tensor **y_p,
		    struct err *e)
{
	const struct model_config *m = &c->stage->cfg;
	struct tensor *y;
	TRY(op_unpermute_apply(t, rows, w->weight, w->mlp ? NULL : w->h, w->r, &y, e));
	if (w->mlp) {
		TRY(op_rmsnorm_apply(t, y, l->norm[NORM_SIDE_OUT], m->hidden, (float)m->norm_eps,
				     m->norm_plus, w->mlp, &y, e));
		TRY(op_rmsnorm_apply(t, y, l->norm[NORM_MLP_OUT], m->hidden, (float)m->norm_eps,
				     m->norm_plus, w->h, &y, e));
	}
	return block_scale(t, l, y, y_p, e);
}

int experts_apply(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *h, struct tensor **y_p, struct err *e)
{
	struct expert_rows w;
	struct tensor *rows;
	TRY(experts_route(t, l, c, h, &w, e));
	TRY(experts_compute(t, l, c, w.rows, w.r, &rows, e));
	return experts_combine(t, l, c, &w, rows, y_p, e);
}

int experts_begin(struct slot *sl, struct err *e)
{
	const struct stage *s = sl->stage;
	const int64_t n = s->cfg.experts;
	struct router_sums *u;
	if (!n || !sl->b.train || !(s->opt.router_loss > 0 || s->opt.router_z > 0))
		return 0;
	u = sl->sums = arena_alloc(&sl->host, sizeof *u);
	if (u) {
		u->experts = n;
		u->picks = arena_alloc(&sl->host, (size_t)n * sizeof *u->picks);
		u->probability = arena_alloc(&sl->host, (size_t)n * sizeof *u->probability);
		u->balance = arena_alloc(&sl->host, (size_t)n * sizeof *u->balance);
	}
	return u && u->picks && u->probability && u->balance
		       ? 0
		       : err_nomem(e, (size_t)n * 24, "the sums of routers");
}

void experts_end(struct slot *sl)
{
	struct router_sums *u = sl->sums;
	const struct stage_options *o = &sl->stage->opt;
	if (!u)
		return;
	const double units = (double)(sl->b.pairs ? sl->b.nrows : sl->trained),
		     scale = units * (double)(sl->b.scale > 0 ? sl->b.scale : 1), r = u->rows,
		     by = (double)o->router_loss * (double)u->experts / (r * r),
		     z = (double)o->router_z / r;
	double sum = 0;
	for (int64_t i = 0; i < u->experts; i++) {
		sum += u->picks[i] * u->probability[i];
		u->balance[i] = (float)(scale * by * u->picks[i]);
	}
	u->z = (float)(scale * z);
	u->known = true;
	sl->loss += units * (by * sum + z * u->square);
}
