/* SPDX-License-Identifier: Apache-2.0 */
/* model_llama.c - Llama 2, 3, 3.1, 3.2, SmolLM2, TinyLlama: the plain decoder. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"

static int read_llama(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	TRY(json_opt_bool(j, where, "mlp_bias", &c->mlp_bias, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	return 0;
}

static const char *const types[] = { "llama", NULL };
static const char *const keys[] = { "attention_bias", "mlp_bias", NULL };

const struct model_family model_llama = { .name = "llama",
					  .help = "Llama 2 to 3.2, SmolLM2, TinyLlama",
					  .model_types = types,
					  .keys = keys,
					  .read = read_llama };
