/* SPDX-License-Identifier: Apache-2.0 */
/* model_olmoe.c - OLMoE: Llama with norms on all of q and of k, experts in every layer. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

static int read_olmoe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	double clip = 0;
	c->qk_norm = c->qk_norm_whole = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	TRY(json_opt_num(j, where, "clip_qkv", 0, 1e9, &clip, e));
	if (clip > 0)
		return err_set(e, ERR_UNSUPPORTED, "%s: 'clip_qkv' is %g; only null is supported",
			       where, clip);
	TRY(json_opt_bool(j, where, "norm_topk_prob", &c->experts_whole, e));
	return mixture_read(j, where, "num_experts", 64, 8, 0.01, c, e);
}

static const char *const types[] = { "olmoe", NULL };
static const char *const keys[] = { "attention_bias",
				    "clip_qkv",
				    "norm_topk_prob",
				    "num_experts",
				    "num_local_experts",
				    "num_experts_per_tok",
				    "router_aux_loss_coef",
				    "output_router_logits",
				    NULL };

const struct model_family model_olmoe = { .name = "olmoe",
					  .help = "OLMoE",
					  .model_types = types,
					  .keys = keys,
					  .norm_eps = 1e-5,
					  .read = read_olmoe };
