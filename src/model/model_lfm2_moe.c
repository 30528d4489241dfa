/* SPDX-License-Identifier: Apache-2.0 */
/* model_lfm2_moe.c - LFM2 with experts (8B-A1B): the layers of LFM2 (model_lfm2.c), of which the
 * first have MLPs and the others experts, chosen by the sigmoid of a logit plus a correction.
 * Weights that are divided by their sum are divided by 1e-6 more in transformers. Source:
 * transformers 5.24, models/lfm2_moe. */
#include "model/lfm.h"
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "file/lfm2_keys.h"

static int read_lfm2_moe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	bool corrected = true;
	int64_t dense = 2;
	c->router_sigmoid = c->experts_whole = true;
	c->expert_names = EXPERTS_FF;
	TRY(lfm_read(j, where, 3, c, e));
	TRY(lfm2_read_layers(j, where, c->layers, c->delta, &c->delta_layers, e));
	TRY(json_opt_int(j, where, "num_dense_layers", 0, c->layers, &dense, e));
	for (int64_t i = 0; i < dense; i++)
		mixture_set_dense(c, i, c->intermediate);
	TRY(mixture_check_some(where, c, e));
	c->intermediate = 1792;
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_opt_bool(j, where, "norm_topk_prob", &c->experts_whole, e));
	TRY(json_opt_bool(j, where, "use_expert_bias", &corrected, e));
	TRY(json_opt_num(j, where, "routed_scaling_factor", 1e-6, 1e6, &c->routed_scale, e));
	c->correction = corrected ? CORRECTION_FF : CORRECTION_NONE;
	TRY(mixture_read(j, where, "num_experts", 32, 4, 0, c, e));
	c->router_loss = 0;
	return 0;
}

static const char *const types[] = { "lfm2_moe", NULL };
static const char *const keys[] = { LFM_KEYS,
				    "layer_types",
				    "num_dense_layers",
				    "moe_intermediate_size",
				    "num_experts",
				    "num_experts_per_tok",
				    "norm_topk_prob",
				    "use_expert_bias",
				    "routed_scaling_factor",
				    "output_router_logits",
				    NULL };

const struct model_family model_lfm2_moe = { .name = "lfm2_moe",
					     .help = "LFM2 with experts",
					     .model_types = types,
					     .keys = keys,
					     .rope_theta = 1e6,
					     .norm_eps = 1e-5,
					     .tied = true,
					     .read = read_lfm2_moe };
