/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen3_moe.c - Qwen3-MoE: the attention of Qwen3, experts in place of MLPs. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_qwen3_moe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->qk_norm = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	TRY(mixture_read_dense(j, where, c->intermediate, c, e));
	TRY(mixture_read_widths(j, where, 768, 0, c, e));
	TRY(mixture_read(j, where, "num_experts", 128, 8, 0.001, c, e));
	return qwen_read_window(j, where, c, e);
}

static const char *const types[] = { "qwen3_moe", NULL };
static const char *const keys[] = {
	"attention_bias",       "use_sliding_window",    "sliding_window",
	"max_window_layers",    "layer_types",           "decoder_sparse_step",
	"mlp_only_layers",      "moe_intermediate_size", "norm_topk_prob",
	"num_experts",          "num_local_experts",     "num_experts_per_tok",
	"router_aux_loss_coef", "output_router_logits",  NULL
};

const struct model_family model_qwen3_moe = { .name = "qwen3_moe",
					      .help = "Qwen3-MoE",
					      .model_types = types,
					      .keys = keys,
					      .read = read_qwen3_moe };
