/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c - see mixture.h. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "tensor/routing.h"

#include <string.h>

int mixture_read(const json_t *j, const char *where, const char *count, int64_t default_count,
		 int64_t default_top, double default_loss, struct model_config *c, struct err *e)
{
	bool asked = false;
	c->experts = default_count;
	c->top_k = default_top;
	c->router_loss = default_loss;
	/* transformers writes either name */
	TRY(json_opt_int(j, where, "num_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "num_local_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "n_routed_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "moe_num_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "num_experts_per_tok", 1, EXPERTS_MOST, &c->top_k, e));
	TRY(json_opt_int(j, where, "moe_k", 1, EXPERTS_MOST, &c->top_k, e));
	TRY(json_opt_num(j, where, "router_aux_loss_coef", 0, 1e6, &c->router_loss, e));
	TRY(json_opt_bool(j, where, "output_router_logits", &asked, e));
	if (c->top_k > c->experts)
		return err_set(e, ERR_INPUT,
			       "%s: a token goes to %lld experts (num_experts_per_tok), and there "
			       "are %lld (%s)",
			       where, (long long)c->top_k, (long long)c->experts, count);
	c->router_loss = asked ? c->router_loss : 0;
	return 0;
}

int mixture_read_widths(const json_t *j, const char *where, int64_t width, int64_t shared,
			struct model_config *c, struct err *e)
{
	c->intermediate = width;
	c->shared = shared;
	c->shared_gated = shared > 0;
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	if (shared)
		TRY(json_opt_int(j, where, "shared_expert_intermediate_size", 1, 1 << 22,
				 &c->shared, e));
	return json_opt_bool(j, where, "norm_topk_prob", &c->experts_whole, e);
}

void mixture_set_dense(struct model_config *c, int64_t i, int64_t width)
{
	c->dense_layers += !c->dense[i];
	c->dense[i] = 1;
	c->dense_width = width;
}

int mixture_check_some(const char *where, const struct model_config *c, struct err *e)
{
	return c->dense_layers < c->layers
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED, "%s: no layer has experts", where);
}

int mixture_read_dense(const json_t *j, const char *where, int64_t width, struct model_config *c,
		       struct err *e)
{
	const json_t *list = json_object_get(j, "mlp_only_layers"), *v;
	int64_t step = 1;
	size_t k;
	TRY(json_opt_int(j, where, "decoder_sparse_step", 1, 1 << 20, &step, e));
	for (int64_t i = 0; i < c->layers; i++)
		if ((i + 1) % step)
			mixture_set_dense(c, i, width);
	json_array_foreach((json_t *)list, k, v)
	{
		const int64_t i = json_is_integer(v) ? json_integer_value(v) : -1;
		if (i < 0 || i >= c->layers)
			return err_set(e, ERR_INPUT,
				       "%s: 'mlp_only_layers' names something that is no layer",
				       where);
		mixture_set_dense(c, i, width);
	}
	return mixture_check_some(where, c, e);
}

int mixture_only_one(const json_t *j, const char *where, const char *key, struct err *e)
{
	int64_t n = 1;
	TRY(json_opt_int(j, where, key, 1, 1 << 20, &n, e));
	return n == 1 ? 0
		      : err_set(e, ERR_UNSUPPORTED, "%s: '%s' is %lld; only 1 is supported", where,
				key, (long long)n);
}

int mixture_router_is(const json_t *j, const char *where, const char *method, const char *scores,
		      struct err *e)
{
	const char *m = method, *s = scores;
	TRY(json_opt_str(j, where, "topk_method", &m, e));
	TRY(json_opt_str(j, where, "scoring_func", &s, e));
	if (!strcmp(m, method) && !strcmp(s, scores))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: 'topk_method' is '%s' and 'scoring_func' '%s'; only %s and %s are "
		       "supported",
		       where, m, s, method, scores);
}

int mixture_read_corrected(const json_t *j, const char *where, const struct mixture_defaults *d,
			   struct model_config *c, struct err *e)
{
	int64_t shared = 1;
	c->router_sigmoid = c->experts_whole = true;
	c->correction = CORRECTION_GATE;
	c->routed_scale = d->scale;
	c->intermediate = d->width;
	c->extra_layers = 1;
	TRY(mixture_only_one(j, where, "n_group", e));
	TRY(mixture_only_one(j, where, "topk_group", e));
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_opt_int(j, where, "n_shared_experts", 1, 64, &shared, e));
	c->shared = shared * c->intermediate;
	TRY(json_opt_bool(j, where, "norm_topk_prob", &c->experts_whole, e));
	TRY(json_opt_num(j, where, "routed_scaling_factor", 1e-6, 1e6, &c->routed_scale, e));
	TRY(json_opt_int(j, where, "num_nextn_predict_layers", 0, 64, &c->extra_layers, e));
	TRY(json_opt_int(j, where, "num_mtp_layers", 0, 64, &c->extra_layers, e));
	TRY(mixture_read(j, where, "n_routed_experts", d->experts, d->top, 0, c, e));
	c->router_loss = 0;
	return 0;
}

int mixture_losses(const struct model_config *c, double balance, double z, float *balance_p,
		   float *z_p, struct err *e)
{
	if (!c->experts && (balance > 0 || z > 0))
		return err_set(e, ERR_USAGE, "%s: a %s model has no router",
			       balance > 0 ? "router_aux_loss_coef" : "router_z_loss_coef",
			       c->family);
	if (c->correction && balance > 0)
		return err_set(e, ERR_USAGE,
			       "router_aux_loss_coef: %s has no such loss, its routers are "
			       "balanced by the correction of their choice",
			       c->family);
	*balance_p = (float)(balance < 0 ? c->router_loss : balance);
	*z_p = (float)z;
	return 0;
}
