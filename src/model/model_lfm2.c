/* SPDX-License-Identifier: Apache-2.0 */
/* model_lfm2.c - LFM2 (Liquid AI 2025), dense: layers with a short convolution between gates
 * (delta.h) and layers with attention, whose queries and keys are normed by head; names of its
 * own for modules and norms. Source: transformers 5.24, models/lfm2. */
#include "model/lfm.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/lfm2_keys.h"

/* What transformers does not read, and what it would contradict. */
static int check_same(const json_t *j, const char *where, const struct model_config *c,
		      struct err *e)
{
	const struct {
		const char *key;
		int64_t want;
	} rows[] = { { "block_dim", c->hidden },
		     { "conv_dim", c->hidden },
		     { "conv_dim_out", c->hidden },
		     { "num_heads", c->heads } };
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t v = rows[i].want;
		TRY(json_opt_int(j, where, rows[i].key, 1, 1 << 22, &v, e));
		if (v != rows[i].want)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s' is %lld; only %lld is supported", where,
				       rows[i].key, (long long)v, (long long)rows[i].want);
	}
	static const struct {
		const char *key;
		bool want;
	} flags[] = { { "block_use_swiglu", true }, { "use_pos_enc", true } };
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		bool v = flags[i].want;
		TRY(json_opt_bool(j, where, flags[i].key, &v, e));
		if (v != flags[i].want)
			return err_set(e, ERR_UNSUPPORTED, "%s: '%s' is %s; only %s is supported",
				       where, flags[i].key, v ? "true" : "false",
				       v ? "false" : "true");
	}
	return 0;
}

static int read_lfm2(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	TRY(lfm_read(j, where, 3, c, e));
	TRY(check_same(j, where, c, e));
	TRY(lfm2_width(j, where, &c->intermediate, e));
	return lfm2_read_layers(j, where, c->layers, c->delta, &c->delta_layers, e);
}

static const char *const types[] = { "lfm2", NULL };
static const char *const keys[] = { LFM_KEYS,
				    "conv_dim",
				    "conv_dim_out",
				    "conv_use_xavier_init",
				    "block_dim",
				    "block_ff_dim",
				    "block_auto_adjust_ff_dim",
				    "block_ffn_dim_multiplier",
				    "block_multiple_of",
				    "block_mlp_init_scale",
				    "block_out_init_scale",
				    "block_norm_eps",
				    "block_use_swiglu",
				    "block_use_xavier_init",
				    "full_attn_idxs",
				    "layer_types",
				    "num_heads",
				    "use_pos_enc",
				    NULL };

const struct model_family model_lfm2 = { .name = "lfm2",
					 .help = "LFM2 (dense)",
					 .model_types = types,
					 .keys = keys,
					 .rope_theta = 1e6,
					 .norm_eps = 1e-5,
					 .tied = true,
					 .no_mlp = true,
					 .read = read_lfm2 };
