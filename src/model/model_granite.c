/* SPDX-License-Identifier: Apache-2.0 */
/* model_granite.c - Granite 3: Llama with factors on embeddings, blocks, scores and logits. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"

static int read_granite(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	double divisor = 1;
	c->embed_scale = c->residual_scale = c->attn_scale = 1;
	TRY(json_opt_bool(j, where, "mlp_bias", &c->mlp_bias, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_num(j, where, "embedding_multiplier", 1e-9, 1e9, &c->embed_scale, e));
	TRY(json_opt_num(j, where, "residual_multiplier", 1e-9, 1e9, &c->residual_scale, e));
	TRY(json_opt_num(j, where, "attention_multiplier", 1e-9, 1e9, &c->attn_scale, e));
	TRY(json_opt_num(j, where, "logits_scaling", 1e-9, 1e9, &divisor, e));
	c->logit_scale = 1 / divisor;
	c->o_bias = c->qkv_bias;
	return 0;
}

static const char *const types[] = { "granite", NULL };
static const char *const keys[] = { "attention_bias",
				    "mlp_bias",
				    "embedding_multiplier",
				    "residual_multiplier",
				    "attention_multiplier",
				    "logits_scaling",
				    NULL };

const struct model_family model_granite = { .name = "granite",
					    .help = "Granite 3 (dense)",
					    .model_types = types,
					    .keys = keys,
					    .read = read_granite };
