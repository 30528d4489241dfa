/* SPDX-License-Identifier: Apache-2.0 */
/* granite.c - see granite.h. */
#include "model/granite.h"

#include "base/err.h"
#include "base/json.h"

int granite_read(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	double divisor = 1;
	c->embed_scale = c->residual_scale = c->attn_scale = 1;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_num(j, where, "embedding_multiplier", 1e-9, 1e9, &c->embed_scale, e));
	TRY(json_opt_num(j, where, "residual_multiplier", 1e-9, 1e9, &c->residual_scale, e));
	TRY(json_opt_num(j, where, "attention_multiplier", 1e-9, 1e9, &c->attn_scale, e));
	TRY(json_opt_num(j, where, "logits_scaling", 1e-9, 1e9, &divisor, e));
	c->logit_scale = 1 / divisor;
	c->o_bias = c->qkv_bias;
	return 0;
}
