/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen3.c - Qwen3 (dense): a norm on each head of q and k, no biases unless asked for, head
 * width of its own. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_qwen3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->qk_norm = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	return qwen_read_window(j, where, c, e);
}

static const char *const types[] = { "qwen3", NULL };
static const char *const keys[] = { "attention_bias",    "use_sliding_window", "sliding_window",
				    "max_window_layers", "layer_types",        NULL };

const struct model_family model_qwen3 = { .name = "qwen3",
					  .help = "Qwen3 (dense)",
					  .model_types = types,
					  .keys = keys,
					  .read = read_qwen3 };
