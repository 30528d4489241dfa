/* SPDX-License-Identifier: Apache-2.0 */
/* model_lfm3.c - LFM3 (Liquid AI 2026), dense: short convolutions as in LFM2 (delta.h), and
 * attention with and without a window, of which each head's output is multiplied by the sigmoid of
 * a gate of its own; norms before and behind both blocks. Source: transformers 5.24, models/lfm3.
 */
#include "model/lfm.h"

#include "base/err.h"
#include "base/json.h"
#include "model/rope.h"

#include <string.h>

/* A layer has a convolution, or attention with or without a window. */
static int read_layers(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const json_t *types = json_object_get(j, "layer_types");
	if (json_is_array(types) && (int64_t)json_array_size(types) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'layer_types' has %zu entries for %lld layers",
			       where, json_array_size(types), (long long)c->layers);
	for (int64_t i = 0; i < c->layers; i++) {
		const char *type = i % 4 == 2            ? "full_attention"
				   : i % 4 == 0 && i > 0 ? "sliding_attention"
							 : "conv";
		if (json_is_array(types))
			type = json_string_value(json_array_get(types, (size_t)i));
		c->delta[i] = type && !strcmp(type, "conv");
		c->windowed[i] = type && !strcmp(type, "sliding_attention");
		c->delta_layers += c->delta[i];
		if (!type || (!c->delta[i] && !c->windowed[i] && strcmp(type, "full_attention")))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'layer_types': '%s' is not supported", where,
				       type ? type : "?");
		c->rope_table[i] = c->windowed[i];
	}
	return 0;
}

static int read_lfm3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	bool behind = true;
	c->lfm3 = c->head_gate = true;
	c->window = 256;
	TRY(lfm_read(j, where, 7, c, e));
	TRY(json_opt_bool(j, where, "use_sandwich_norm", &behind, e));
	TRY(json_opt_bool(j, where, "use_attention_gate", &c->head_gate, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &c->window, e));
	c->o_bias = c->qkv_bias;
	if (behind)
		c->norms = NORMS_LFM3;
	TRY(read_layers(j, where, c, e));
	TRY(rope_read_kind(j, where, "full_attention", 0, c->head_dim, 1e6, 0.5, c, e));
	return rope_read_kind(j, where, "sliding_attention", 1, c->head_dim, 1e4, 1, c, e);
}

static const char *const types[] = { "lfm3", NULL };
static const char *const keys[] = { LFM_KEYS,
				    "layer_types",
				    "sliding_window",
				    "use_sandwich_norm",
				    "use_attention_gate",
				    "attention_bias",
				    NULL };

const struct model_family model_lfm3 = { .name = "lfm3",
					 .help = "LFM3 (dense)",
					 .model_types = types,
					 .keys = keys,
					 .norm_eps = 1e-5,
					 .head_dim = 128,
					 .tied = true,
					 .rope = true,
					 .read = read_lfm3 };
