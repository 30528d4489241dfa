/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen3_5_moe.c - Qwen3.5 with experts: the attention of Qwen3.5, in place of MLPs experts
 * whose weights add up to one, and beside them one that every token has, times the sigmoid of a
 * logit. */
#include "model/mixture.h"
#include "model/qwen3_5.h"

#include "base/err.h"
#include "base/json.h"

static int read_qwen3_5_moe(const json_t *j, const char *where, struct model_config *c,
			    struct err *e)
{
	TRY(qwen3_5_read(j, where, c, e));
	c->experts_whole = true;
	TRY(mixture_read_widths(j, where, 512, 512, c, e));
	if (!c->experts_whole)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'norm_topk_prob' is false; only true is supported", where);
	if (json_array_size(json_object_get(j, "mlp_only_layers")))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'mlp_only_layers' names layers; only an empty list is "
			       "supported",
			       where);
	return mixture_read(j, where, "num_experts", 256, 8, 0.001, c, e);
}

static const char *const types[] = { "qwen3_5_moe_text", NULL };
static const char *const keys[] = { QWEN3_5_KEYS,
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

const struct model_family model_qwen3_5_moe = { .name = "qwen3_5_moe",
						.help = "Qwen3.5 with experts",
						.model_types = types,
						.keys = keys,
						.head_dim = 256,
						.rotary = 0.25,
						.no_mlp = true,
						.read = read_qwen3_5_moe };
