/* SPDX-License-Identifier: Apache-2.0 */
/* model_gpt_oss.c - gpt-oss (OpenAI 2025, arXiv 2508.10925): experts with biases and a clamped
 * SwiGLU, a sink for each head, a window in every other layer. The softmax over the logits of the
 * chosen experts alone is that over all, divided by the sum of the chosen. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "model/rope.h"
#include "model/window.h"

/* What missing rope parameters mean to transformers. */
static int default_rope(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	double theta = 150000;
	TRY(json_opt_num(j, where, "rope_theta", 1, 1e12, &theta, e));
	json_t *s = json_pack("{s:s,s:f,s:b,s:i}", "rope_type", "yarn", "factor", 32.0, "truncate",
			      0, "original_max_position_embeddings", 4096);
	if (!s)
		return err_nomem(e, 256, "rope parameters");
	int rc = rope_scale(j, s, where, theta, c, 0, e);
	json_decref(s);
	return rc;
}

static int read_gpt_oss(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 128;
	c->expert_names = EXPERTS_OSS;
	c->experts_whole = c->expert_bias = c->sinks = c->qkv_bias = true;
	c->swiglu_alpha = 1.702;
	c->swiglu_limit = 7;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	TRY(json_opt_num(j, where, "swiglu_alpha", 1e-3, 1e3, &c->swiglu_alpha, e));
	TRY(json_opt_num(j, where, "swiglu_limit", 1e-3, 1e6, &c->swiglu_limit, e));
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_every(c, window, 2);
	TRY(model_window_types(j, where, c, e));
	if (!json_is_object(json_object_get(j, "rope_parameters")) &&
	    !json_is_object(json_object_get(j, "rope_scaling")))
		TRY(default_rope(j, where, c, e));
	return mixture_read(j, where, "num_local_experts", 128, 4, 0.001, c, e);
}

static const char *const types[] = { "gpt_oss", NULL };
static const char *const keys[] = { "attention_bias",
				    "sliding_window",
				    "layer_types",
				    "swiglu_alpha",
				    "swiglu_limit",
				    "num_experts",
				    "num_local_experts",
				    "num_experts_per_tok",
				    "experts_per_token",
				    "initial_context_length",
				    "router_aux_loss_coef",
				    "output_router_logits",
				    NULL };

const struct model_family model_gpt_oss = { .name = "gpt_oss",
					    .help = "gpt-oss",
					    .model_types = types,
					    .keys = keys,
					    .rope_theta = 150000,
					    .norm_eps = 1e-5,
					    .head_dim = 64,
					    .read = read_gpt_oss };
