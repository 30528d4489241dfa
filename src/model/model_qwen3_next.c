/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen3_next.c - Qwen3-Next: as Qwen3.5 with experts, but the linear modules of linear
 * attention are two matrices, by key heads, and some layers may have MLPs in place of experts. */
#include "model/mixture.h"
#include "model/qwen3_5.h"

#include "base/err.h"
#include "base/json.h"

static int read_qwen3_next(const json_t *j, const char *where, struct model_config *c,
			   struct err *e)
{
	TRY(qwen3_5_read(j, where, c, e));
	TRY(mixture_read_dense(j, where, c->intermediate, c, e));
	c->delta_joined = true;
	c->experts_whole = true;
	TRY(mixture_read_widths(j, where, 512, 512, c, e));
	return mixture_read(j, where, "num_experts", 512, 10, 0.001, c, e);
}

static const char *const types[] = { "qwen3_next", NULL };
static const char *const keys[] = { QWEN3_5_KEYS,
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

const struct model_family model_qwen3_next = { .name = "qwen3_next",
					       .help = "Qwen3-Next",
					       .model_types = types,
					       .keys = keys,
					       .head_dim = 256,
					       .rotary = 0.25,
					       .read = read_qwen3_next };
