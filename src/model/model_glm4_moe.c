/* SPDX-License-Identifier: Apache-2.0 */
/* model_glm4_moe.c - GLM-4.5, 4.6 and their Air: the first layers have MLPs, the others experts
 * chosen by the sigmoid of a logit plus a correction, and an expert that every token has. Layers
 * that predict further tokens (num_nextn_predict_layers) are not read, as in transformers. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

static int only_one(const json_t *j, const char *where, const char *key, struct err *e)
{
	int64_t n = 1;
	TRY(json_opt_int(j, where, key, 1, 1 << 20, &n, e));
	return n == 1 ? 0
		      : err_set(e, ERR_UNSUPPORTED, "%s: '%s' is %lld; only 1 is supported", where,
				key, (long long)n);
}

static int read_glm4_moe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t dense = 1, shared = 1;
	c->router_sigmoid = c->experts_whole = true;
	c->correction = CORRECTION_GATE;
	c->routed_scale = 1;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_bool(j, where, "use_qk_norm", &c->qk_norm, e));
	TRY(only_one(j, where, "n_group", e));
	TRY(only_one(j, where, "topk_group", e));
	TRY(json_opt_int(j, where, "first_k_dense_replace", 0, c->layers - 1, &dense, e));
	for (int64_t i = 0; i < dense; i++)
		mixture_set_dense(c, i, c->intermediate);
	c->intermediate = 1408;
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_opt_int(j, where, "n_shared_experts", 1, 64, &shared, e));
	c->shared = shared * c->intermediate;
	TRY(json_opt_bool(j, where, "norm_topk_prob", &c->experts_whole, e));
	TRY(json_opt_num(j, where, "routed_scaling_factor", 1e-6, 1e6, &c->routed_scale, e));
	c->extra_layers = 1;
	TRY(json_opt_int(j, where, "num_nextn_predict_layers", 0, 64, &c->extra_layers, e));
	TRY(json_opt_int(j, where, "num_mtp_layers", 0, 64, &c->extra_layers, e));
	TRY(mixture_read(j, where, "n_routed_experts", 128, 8, 0, c, e));
	c->router_loss = 0;
	return 0;
}

static const char *const types[] = { "glm4_moe", NULL };
static const char *const keys[] = { "attention_bias",
				    "use_qk_norm",
				    "n_group",
				    "topk_group",
				    "first_k_dense_replace",
				    "moe_intermediate_size",
				    "n_shared_experts",
				    "norm_topk_prob",
				    "routed_scaling_factor",
				    "num_nextn_predict_layers",
				    "num_mtp_layers",
				    "n_routed_experts",
				    "num_experts",
				    "num_local_experts",
				    "num_experts_per_tok",
				    "output_router_logits",
				    NULL };

const struct model_family model_glm4_moe = { .name = "glm4_moe",
					     .help = "GLM-4.5",
					     .model_types = types,
					     .keys = keys,
					     .norm_eps = 1e-5,
					     .rotary = 0.5,
					     .read = read_glm4_moe };
