/* SPDX-License-Identifier: Apache-2.0 */
/* model_smollm3.c - SmolLM3: Llama in which every fourth layer does not rotate. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_smollm3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t interval = 4;
	TRY(json_opt_bool(j, where, "mlp_bias", &c->mlp_bias, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_int(j, where, "no_rope_layer_interval", 1, 1 << 20, &interval, e));
	c->o_bias = c->qkv_bias;
	for (int64_t i = 0; i < c->layers; i++)
		c->no_rope[i] = (i + 1) % interval == 0;
	const json_t *list = json_object_get(j, "no_rope_layers");
	if (json_is_array(list) && (int64_t)json_array_size(list) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'no_rope_layers' has %zu entries for %lld layers",
			       where, json_array_size(list), (long long)c->layers);
	for (int64_t i = 0; json_is_array(list) && i < c->layers; i++) /* 1: the layer rotates */
		c->no_rope[i] = json_integer_value(json_array_get(list, (size_t)i)) == 0;
	return qwen_read_window(j, where, c, e);
}

static const char *const types[] = { "smollm3", NULL };
static const char *const keys[] = {
	"attention_bias",         "mlp_bias",           "no_rope_layers",
	"no_rope_layer_interval", "use_sliding_window", "sliding_window",
	"max_window_layers",      "layer_types",        NULL
};

const struct model_family model_smollm3 = { .name = "smollm3",
					    .help = "SmolLM3",
					    .model_types = types,
					    .keys = keys,
					    .rope_theta = 2e6,
					    .tied = true,
					    .read = read_smollm3 };
