/* SPDX-License-Identifier: Apache-2.0 */
/* model_olmo2.c - OLMo 2: norms behind attention and MLP, and on all heads of q and of k as one
 * vector. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"

static int read_olmo2(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->norms = NORMS_BEHIND;
	c->qk_norm = c->qk_norm_whole = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	return 0;
}

static const char *const types[] = { "olmo2", NULL };
static const char *const keys[] = { "attention_bias", NULL };

const struct model_family model_olmo2 = {
	.name = "olmo2",
	.help = "OLMo 2",
	.model_types = types,
	.keys = keys,
	.norm_eps = 1e-5,
	.read = read_olmo2,
};
