/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen2_moe.c - Qwen2-MoE (Qwen1.5-MoE): the attention of Qwen2, experts in place of MLPs,
 * and beside them one that every token has, times the sigmoid of a logit. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_qwen2_moe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	bool window = false;
	c->qkv_bias = true;
	TRY(json_opt_bool(j, where, "qkv_bias", &c->qkv_bias, e));
	TRY(mixture_read_dense(j, where, c->intermediate, c, e));
	TRY(mixture_read_widths(j, where, 1408, 5632, c, e));
	TRY(mixture_read(j, where, "num_experts", 60, 4, 0.001, c, e));
	TRY(json_opt_bool(j, where, "use_sliding_window", &window, e));
	/* here transformers gives a window to every other layer below max_window_layers */
	if (window && !json_is_array(json_object_get(j, "layer_types")))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'use_sliding_window' without 'layer_types' is not supported",
			       where);
	return qwen_read_window(j, where, c, e);
}

static const char *const types[] = { "qwen2_moe", NULL };
static const char *const keys[] = { "qkv_bias",
				    "use_sliding_window",
				    "sliding_window",
				    "max_window_layers",
				    "layer_types",
				    "decoder_sparse_step",
				    "mlp_only_layers",
				    "moe_intermediate_size",
				    "shared_expert_intermediate_size",
				    "norm_topk_prob",
				    "num_experts",
				    "num_local_experts",
				    "num_experts_per_tok",
				    "router_aux_loss_coef",
				    "output_router_logits",
				    NULL };

const struct model_family model_qwen2_moe = { .name = "qwen2_moe",
					      .help = "Qwen2-MoE",
					      .model_types = types,
					      .keys = keys,
					      .read = read_qwen2_moe };
