/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3_5.c - see qwen3_5.h. */
#include "model/qwen3_5.h"

#include "base/err.h"
#include "base/json.h"
#include "dev/dev_delta.h"

#include <string.h>

/* `layer_types`, or each `full_attention_interval`-th layer has attention. */
static int read_layers(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const json_t *types = json_object_get(j, "layer_types");
	int64_t every = 4;
	TRY(json_opt_int(j, where, "full_attention_interval", 1, MODEL_LAYERS_MOST, &every, e));
	if (json_is_array(types) && (int64_t)json_array_size(types) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'layer_types' has %zu entries for %lld layers",
			       where, json_array_size(types), (long long)c->layers);
	for (int64_t i = 0; i < c->layers; i++) {
		bool linear = (i + 1) % every != 0;
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		if (json_is_array(types)) {
			linear = type && !strcmp(type, "linear_attention");
			if (!linear && (!type || strcmp(type, "full_attention") != 0))
				return err_set(e, ERR_UNSUPPORTED,
					       "%s: 'layer_types': '%s' is not supported", where,
					       type ? type : "?");
		}
		c->delta[i] = linear;
		c->delta_layers += linear;
	}
	return 0;
}

int qwen3_5_read(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	struct delta_heads h = { 16, 32, 128, 128 };
	bool gate = true;
	int64_t mtp = 0;
	c->qk_norm = true;
	c->norm_plus = 1;
	c->attn_gate = true;
	c->delta_conv = 4;
	c->has_mtp = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	TRY(json_opt_bool(j, where, "attn_output_gate", &gate, e));
	TRY(json_opt_int(j, where, "mtp_num_hidden_layers", 0, 64, &mtp, e));
	TRY(json_opt_int(j, where, "linear_num_key_heads", 1, 4096, &h.keys, e));
	TRY(json_opt_int(j, where, "linear_num_value_heads", 1, 4096, &h.values, e));
	TRY(json_opt_int(j, where, "linear_key_head_dim", 1, DELTA_MOST, &h.dk, e));
	TRY(json_opt_int(j, where, "linear_value_head_dim", 1, DELTA_MOST, &h.dv, e));
	TRY(json_opt_int(j, where, "linear_conv_kernel_dim", 1, 16, &c->delta_conv, e));
	if (h.values % h.keys)
		return err_set(e, ERR_INPUT,
			       "%s: linear_num_value_heads %lld is not a multiple of "
			       "linear_num_key_heads %lld",
			       where, (long long)h.values, (long long)h.keys);
	if (!gate)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'attn_output_gate' is false; only true is supported", where);
	c->delta_heads = h;
	return read_layers(j, where, c, e);
}
