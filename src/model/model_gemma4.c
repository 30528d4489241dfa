/* SPDX-License-Identifier: Apache-2.0 */
/* model_gemma4.c - Gemma 4, text (transformers 5.24, models/gemma4): norms as in Gemma 2 that
 * multiply with their weight alone, q, k and v normed, scores without a factor, five layers with a
 * window to each one without. Those without have wider heads, fewer keys, which may be the values
 * too, and rotate the first of their frequencies only. A mixture has experts beside each MLP. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "file/gemma4_keys.h"
#include "model/rope.h"
#include "tensor/routing.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Which layers have a window, and the heads of both kinds. */
static int read_layers(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	struct gemma4_heads h = { .dim = c->head_dim, .kv = c->kv_heads };
	TRY(gemma4_read_heads(j, where, c->layers, &h, e));
	for (int64_t i = 0; i < c->layers; i++) {
		const int windowed = gemma4_is_windowed(j, where, c->layers, i, e);
		TRY(windowed);
		c->windowed[i] = windowed > 0;
	}
	c->full_k_is_v = h.k_is_v;
	c->full_head_dim = h.full_dim;
	c->full_kv_heads = h.full_kv;
	if (h.full_dim % 2 || h.full_dim > MODEL_HEAD_DIM_MOST || c->heads % h.full_kv)
		return err_set(
			e, ERR_INPUT,
			"%s: layers without a window have heads of %lld numbers, and %lld of "
			"keys for %lld: the first must be even and at most %d, the last a multiple",
			where, (long long)h.full_dim, (long long)h.full_kv, (long long)c->heads,
			MODEL_HEAD_DIM_MOST);
	return 0;
}

static int refuse(const json_t *j, const char *where, struct err *e)
{
	int64_t each = 256, shared = 0;
	const char *both = "vision";
	TRY(json_opt_int(j, where, "hidden_size_per_layer_input", 0, 1 << 20, &each, e));
	TRY(json_opt_int(j, where, "num_kv_shared_layers", 0, MODEL_LAYERS_MOST, &shared, e));
	TRY(json_opt_str(j, where, "use_bidirectional_attention", &both, e));
	if (each || shared)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: Gemma 4 with embeddings for each layer "
			       "('hidden_size_per_layer_input' %lld) or layers that share keys and "
			       "values ('num_kv_shared_layers' %lld), such as E2B and E4B, is not "
			       "supported; 31B and 26B-A4B are",
			       where, (long long)each, (long long)shared);
	if (strcmp(both, "vision") != 0)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: 'use_bidirectional_attention' is '%s'; only null and 'vision' are "
			"supported",
			where, both);
	return 0;
}

/* In every layer, where it has any; transformers has no loss of routers for them. */
static int read_experts(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	TRY(json_opt_bool(j, where, "enable_moe_block", &c->beside, e));
	if (!c->beside)
		return 0;
	c->expert_names = EXPERTS_SIDE;
	c->experts_whole = true;
	c->dense_width = c->intermediate;
	TRY(json_need_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_need_int(j, where, "num_experts", 1, EXPERTS_MOST, &c->experts, e));
	return json_need_int(j, where, "top_k_experts", 1, c->experts, &c->top_k, e);
}

static int read_gemma4(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->window = 512;
	TRY(refuse(j, where, e));
	TRY(read_experts(j, where, c, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &c->window, e));
	TRY(json_opt_num(j, where, "final_logit_softcapping", 1e-3, 1e6, &c->logit_cap, e));
	c->o_bias = c->qkv_bias;
	c->norms = NORMS_GEMMA;
	/* not 0: what is normed is multiplied before it is rounded (rmsnorm_fwd) */
	c->norm_plus = FLT_MIN;
	c->qk_norm = c->v_norm = c->layer_scalar = c->embed_rounded = true;
	c->embed_scale = sqrt((double)c->hidden);
	c->attn_scale = 1;
	TRY(read_layers(j, where, c, e));
	TRY(rope_read_kind(j, where, "full_attention", 0, c->full_head_dim, 1e6, 0.25, c, e));
	TRY(rope_read_kind(j, where, "sliding_attention", 1, c->head_dim, 1e4, 1, c, e));
	for (int64_t i = 0; i < c->layers; i++)
		c->rope_table[i] = c->windowed[i];
	return 0;
}

static const char *const types[] = { "gemma4_text", NULL };
static const char *const keys[] = { "attention_bias",
				    "attention_k_eq_v",
				    "enable_moe_block",
				    "final_logit_softcapping",
				    "global_head_dim",
				    "hidden_size_per_layer_input",
				    "layer_types",
				    "moe_intermediate_size",
				    "num_experts",
				    "num_global_key_value_heads",
				    "num_kv_shared_layers",
				    "per_layer_config",
				    "sliding_window",
				    "top_k_experts",
				    "use_bidirectional_attention",
				    "use_double_wide_mlp", /* of layers that share keys */
				    "vocab_size_per_layer_input",
				    NULL };

const struct model_family model_gemma4 = { .name = "gemma4",
					   .help = "Gemma 4 31B, 26B-A4B",
					   .model_types = types,
					   .keys = keys,
					   .head_dim = 256,
					   .tied = true,
					   .gelu = true,
					   .rope = true,
					   .read = read_gemma4 };
