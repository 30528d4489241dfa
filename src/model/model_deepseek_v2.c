/* SPDX-License-Identifier: Apache-2.0 */
/* model_deepseek_v2.c - DeepSeek-V2-Lite: latent attention, experts by probabilities that are not
 * divided by their sum, and experts that every token has. What is chosen by groups (DeepSeek-V2
 * itself) is refused. */
#include "model/latent_keys.h"
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

static int read_router(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	bool whole = false;
	TRY(mixture_router_is(j, where, "greedy", "softmax", e));
	TRY(json_opt_bool(j, where, "norm_topk_prob", &whole, e));
	if (whole) /* transformers does not do it */
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'norm_topk_prob' is true; only false is supported for this "
			       "family",
			       where);
	c->routed_scale = 1;
	TRY(json_opt_num(j, where, "routed_scaling_factor", 1e-6, 1e6, &c->routed_scale, e));
	TRY(mixture_read(j, where, "n_routed_experts", 64, 6, 0, c, e));
	c->router_loss = 0;
	return 0;
}

static int read_deepseek_v2(const json_t *j, const char *where, struct model_config *c,
			    struct err *e)
{
	int64_t dense = 0, shared = 2;
	bool bias = false;
	TRY(json_opt_bool(j, where, "mlp_bias", &bias, e));
	if (bias)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'mlp_bias' is true; only false is supported", where);
	TRY(mixture_only_one(j, where, "moe_layer_freq", e));
	TRY(json_opt_int(j, where, "first_k_dense_replace", 0, c->layers - 1, &dense, e));
	for (int64_t i = 0; i < dense; i++)
		mixture_set_dense(c, i, c->intermediate);
	c->intermediate = 1407;
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_opt_int(j, where, "n_shared_experts", 1, 64, &shared, e));
	c->shared = shared * c->intermediate;
	return read_router(j, where, c, e);
}

static const char *const types[] = { "deepseek_v2", NULL };
static const char *const keys[] = {
	LATENT_KEYS, "mlp_bias", "moe_layer_freq", "first_k_dense_replace", "moe_intermediate_size",
	"n_shared_experts", "n_routed_experts", "num_experts_per_tok", "num_experts", "topk_method",
	"scoring_func", "norm_topk_prob", "routed_scaling_factor", "output_router_logits",
	/* of groups, and of a loss that transformers has not */
	"n_group", "topk_group", "aux_loss_alpha", "seq_aux", "ep_size", NULL
};

const struct model_family model_deepseek_v2 = { .name = "deepseek_v2",
						.help = "DeepSeek-V2-Lite",
						.model_types = types,
						.keys = keys,
						.latent = true,
						.read = read_deepseek_v2 };
