/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the common part of reading a configuration, and facts that follow from it.
 * See model.h. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/latent_keys.h"
#include "model/own.h"
#include "model/rope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL(name) extern const struct model_family model_##name;
#include "model/model.def"
#undef MODEL

static const struct model_family *const families[] = {
#define MODEL(name) &model_##name,
#include "model/model.def"
#undef MODEL
};

const struct model_family *model_family_at(size_t i)
{
	return i < ARRAY_LEN(families) ? families[i] : NULL;
}

static const char *const linear_names[LIN_COUNT] = {
	"q_proj",
	"k_proj",
	"v_proj",
	"o_proj",
	"gate_proj",
	"up_proj",
	"down_proj",
	"qkv_proj",
	"gate_up_proj",
	"gate",
	"gate_proj",
	"up_proj",
	"down_proj",
	"gate",
	"w1",
	"w3",
	"w2",
	"router",
	"gate_proj",
	"up_proj",
	"down_proj",
	"shared_expert_gate",
	"gate_proj",
	"up_proj",
	"down_proj",
	"in_proj_qkv",
	"in_proj_z",
	"in_proj_b",
	"in_proj_a",
	"out_proj",
	"in_proj_qkvz",
	"in_proj_ba",
	"q_a_proj",
	"q_b_proj",
	"kv_a_proj_with_mqa",
	"kv_b_proj",
	"proj",
	"gate_proj",
	"up_proj",
	"down_proj",
	"in_proj",
	"out_proj",
	"out_proj",
	"w1",
	"w3",
	"w2",
	"input_linear",
	"output_linear",
	"gate",
	"w1",
	"w3",
	"w2",
	"g_proj",
};
static const char *const linear_paths[LIN_COUNT] = { "self_attn.q_proj",
						     "self_attn.k_proj",
						     "self_attn.v_proj",
						     "self_attn.o_proj",
						     "mlp.gate_proj",
						     "mlp.up_proj",
						     "mlp.down_proj",
						     "self_attn.qkv_proj",
						     "mlp.gate_up_proj",
						     "mlp.gate",
						     "mlp.experts.*.gate_proj",
						     "mlp.experts.*.up_proj",
						     "mlp.experts.*.down_proj",
						     "block_sparse_moe.gate",
						     "block_sparse_moe.experts.*.w1",
						     "block_sparse_moe.experts.*.w3",
						     "block_sparse_moe.experts.*.w2",
						     "mlp.router",
						     "mlp.shared_expert.gate_proj",
						     "mlp.shared_expert.up_proj",
						     "mlp.shared_expert.down_proj",
						     "mlp.shared_expert_gate",
						     "mlp.shared_experts.gate_proj",
						     "mlp.shared_experts.up_proj",
						     "mlp.shared_experts.down_proj",
						     "linear_attn.in_proj_qkv",
						     "linear_attn.in_proj_z",
						     "linear_attn.in_proj_b",
						     "linear_attn.in_proj_a",
						     "linear_attn.out_proj",
						     "linear_attn.in_proj_qkvz",
						     "linear_attn.in_proj_ba",
						     "self_attn.q_a_proj",
						     "self_attn.q_b_proj",
						     "self_attn.kv_a_proj_with_mqa",
						     "self_attn.kv_b_proj",
						     "router.proj",
						     "experts.*.gate_proj",
						     "experts.*.up_proj",
						     "experts.*.down_proj",
						     "conv.in_proj",
						     "conv.out_proj",
						     "self_attn.out_proj",
						     "feed_forward.w1",
						     "feed_forward.w3",
						     "feed_forward.w2",
						     "shared_mlp.input_linear",
						     "shared_mlp.output_linear",
						     "feed_forward.gate",
						     "feed_forward.experts.*.w1",
						     "feed_forward.experts.*.w3",
						     "feed_forward.experts.*.w2",
						     "self_attn.g_proj" };

const char *linear_name(enum linear l) { return linear_names[l]; }
const char *linear_path(enum linear l) { return linear_paths[l]; }

/* Whether `l` is part of linear attention, or of a short convolution. */
static bool is_delta(enum linear l)
{
	return (l >= LIN_DELTA_QKV && l <= LIN_DELTA_BA) || l == LIN_CONV_IN || l == LIN_CONV_OUT;
}

enum linear linear_as(const struct model_config *c, enum linear l)
{
	if (c->one_mlp)
		return l == LIN_GATE_UP ? LIN_ONE_IN : l == LIN_DOWN ? LIN_ONE_OUT : l;
	return !c->lfm2        ? l
	       : l == LIN_O    ? (c->lfm3 ? LIN_O : LIN_ATTN_OUT)
	       : l == LIN_GATE ? LIN_FF_GATE
	       : l == LIN_UP   ? LIN_FF_UP
	       : l == LIN_DOWN ? LIN_FF_DOWN
			       : l;
}

enum linear layer_out(const struct model_config *c, int64_t layer)
{
	return !c->delta[layer] ? linear_as(c, LIN_O) : c->lfm2 ? LIN_CONV_OUT : LIN_DELTA_OUT;
}

static bool lfm2_has(const struct model_config *c, enum linear l)
{
	return l == LIN_O || l == LIN_ATTN_OUT         ? (l == LIN_O) == c->lfm3
	       : l == LIN_HEAD_GATE                    ? c->head_gate
	       : l <= LIN_V                            ? true
	       : l >= LIN_FF_GATE && l <= LIN_FF_DOWN  ? !c->experts || c->dense_layers
	       : l == LIN_CONV_IN || l == LIN_CONV_OUT ? c->delta_layers > 0
						       : l >= LIN_FF_ROUTER && c->experts;
}

bool model_has_linear(const struct model_config *c, enum linear l)
{
	const bool dense = !c->experts || c->dense_layers || c->beside;
	return c->lfm2                        ? lfm2_has(c, l)
	       : l == LIN_HEAD_GATE           ? c->head_gate
	       : l >= LIN_CONV_IN             ? c->one_mlp && l >= LIN_ONE_IN && l <= LIN_ONE_OUT
	       : l <= LIN_V && c->latent.kv   ? l == LIN_Q && !c->latent.q
	       : l <= LIN_V                   ? !c->fused_qkv
	       : l >= LIN_SIDE_ROUTER         ? c->experts && c->expert_names == EXPERTS_SIDE
	       : l >= LIN_KV_A                ? c->latent.kv > 0
	       : l >= LIN_Q_A                 ? c->latent.q > 0
	       : l == LIN_QKV                 ? c->fused_qkv
	       : l == LIN_O                   ? true
	       : l == LIN_GATE || l == LIN_UP ? !c->fused_gate_up && dense
	       : l == LIN_GATE_UP             ? c->fused_gate_up && dense && !c->one_mlp
	       : l == LIN_DOWN                ? dense && !c->one_mlp
	       : l == LIN_DELTA_OUT           ? c->delta_layers > 0
	       : is_delta(l)           ? c->delta_layers && c->delta_joined == (l > LIN_DELTA_OUT)
	       : !c->experts           ? false
	       : l == LIN_SHARED_SCORE ? c->shared && c->shared_gated
	       : l >= LIN_SHARED_GATES ? c->shared && !c->shared_gated
	       : l >= LIN_SHARED_GATE  ? c->shared && c->shared_gated
	       : l == LIN_ROUTER       ? c->expert_names == EXPERTS_MLP
	       : l == LIN_OSS_ROUTER   ? c->expert_names == EXPERTS_OSS
	       : l <= LIN_EXPERT_DOWN
		       ? c->expert_names == EXPERTS_MLP || c->expert_names == EXPERTS_OSS
		       : c->expert_names == EXPERTS_SPARSE;
}

/* Whether `l` is part of an MLP in a model with experts, or of experts; else each layer has it. */
static bool is_mlp(enum linear l)
{
	return l == LIN_GATE || l == LIN_UP || l == LIN_DOWN || l == LIN_GATE_UP ||
	       (l >= LIN_FF_GATE && l <= LIN_ONE_OUT);
}

/* Whether `l` is part of attention, and not of linear attention. */
static bool is_attention(enum linear l)
{
	return l <= LIN_O || l == LIN_QKV || (l >= LIN_Q_A && l <= LIN_KV_B) || l == LIN_ATTN_OUT ||
	       l == LIN_HEAD_GATE;
}

bool linear_is_router(enum linear l)
{
	return l == LIN_ROUTER || l == LIN_SPARSE_ROUTER || l == LIN_OSS_ROUTER ||
	       l == LIN_SHARED_SCORE || l == LIN_SIDE_ROUTER || l == LIN_FF_ROUTER;
}

bool linear_is_expert(enum linear l) { return strchr(linear_paths[l], '*') != NULL; }

bool layer_has_linear(const struct model_config *c, int64_t layer, enum linear l)
{
	const bool mixture = layer_is_mixture(c, layer);
	if (l == LIN_V && c->full_k_is_v && !c->windowed[layer])
		return false;
	return model_has_linear(c, l) && (is_mlp(l)         ? !mixture || c->beside
					  : is_attention(l) ? !c->delta[layer]
					  : is_delta(l)     ? c->delta[layer]
							    : mixture);
}

int64_t linear_copies(const struct model_config *c, int64_t layer, enum linear l)
{
	return !layer_has_linear(c, layer, l) ? 0 : linear_is_expert(l) ? c->experts : 1;
}

void model_drop_dense(struct model_config *c)
{
	memset(c->dense, 0, sizeof c->dense);
	c->dense_layers = 0;
}

void linear_module(char out[LINEAR_MODULE], int64_t layer, enum linear l, int64_t expert)
{
	const char *path = linear_paths[l], *star = strchr(path, '*');
	if (star)
		snprintf(out, LINEAR_MODULE, "model.layers.%lld.%.*s%lld%s", (long long)layer,
			 (int)(star - path), path, (long long)expert, star + 1);
	else
		snprintf(out, LINEAR_MODULE, "model.layers.%lld.%s", (long long)layer, path);
}

const char *linear_behind(enum linear l, const char *name, int64_t *expert_p)
{
	const char *path = linear_paths[l], *star = strchr(path, '*');
	size_t n = star ? (size_t)(star - path) : strlen(path);
	*expert_p = 0;
	if (strncmp(name, path, n))
		return NULL;
	name += n;
	if (!star)
		return name;
	const char *digit = name;
	while (*name >= '0' && *name <= '9' && name - digit < 5)
		*expert_p = *expert_p * 10 + (*name++ - '0');
	n = strlen(star + 1);
	if (name == digit || (name - digit > 1 && *digit == '0') || strncmp(name, star + 1, n))
		return NULL;
	return name + n;
}

bool linear_is_of(enum linear l, const char *module)
{
	int64_t expert;
	int at = 0;
	if (sscanf(module, "model.layers.%*d.%n", &at) < 0 || !at)
		return false;
	const char *tail = linear_behind(l, module + at, &expert);
	return tail && !*tail;
}

bool linear_is_quantized(const char *name)
{
	int64_t expert;
	int at = 0;
	if (sscanf(name, "model.layers.%*d.%n", &at) < 0 || !at)
		return false;
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		const char *tail = linear_behind(l, name + at, &expert);
		if (tail && !strcmp(tail, ".weight"))
			return !linear_is_router(l);
	}
	return false;
}

int64_t layer_head_dim(const struct model_config *c, int64_t layer)
{
	return c->full_head_dim && !c->windowed[layer] ? c->full_head_dim : c->head_dim;
}

int64_t layer_kv_heads(const struct model_config *c, int64_t layer)
{
	return c->full_kv_heads && !c->windowed[layer] ? c->full_kv_heads : c->kv_heads;
}

void linear_dims(const struct model_config *c, int64_t layer, enum linear l, int64_t dim[2])
{
	const int64_t d = layer_head_dim(c, layer), q = c->heads * d,
		      kv = layer_kv_heads(c, layer) * d,
		      mlp = c->experts ? c->dense_width : c->intermediate,
		      values = c->delta_heads.values, wide = values * c->delta_heads.dv,
		      out = c->heads * (c->latent.kv ? c->latent.value : d);
	const int64_t dims[LIN_COUNT][2] = { { c->attn_gate ? 2 * q : q, c->hidden },
					     { kv, c->hidden },
					     { kv, c->hidden },
					     { c->hidden, out },
					     { mlp, c->hidden },
					     { mlp, c->hidden },
					     { c->hidden, mlp },
					     { q + 2 * kv, c->hidden },
					     { 2 * mlp, c->hidden },
					     { c->experts, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->hidden, c->intermediate },
					     { c->experts, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->hidden, c->intermediate },
					     { c->experts, c->hidden },
					     { c->shared, c->hidden },
					     { c->shared, c->hidden },
					     { c->hidden, c->shared },
					     { 1, c->hidden },
					     { c->shared, c->hidden },
					     { c->shared, c->hidden },
					     { c->hidden, c->shared },
					     { delta_width(&c->delta_heads), c->hidden },
					     { wide, c->hidden },
					     { values, c->hidden },
					     { values, c->hidden },
					     { c->hidden, wide },
					     { delta_width(&c->delta_heads) + wide, c->hidden },
					     { 2 * values, c->hidden },
					     { c->latent.q, c->hidden },
					     { q, c->latent.q },
					     { c->latent.kv + c->rot, c->hidden },
					     { c->heads * (c->latent.plain + c->latent.value),
					       c->latent.kv },
					     { c->experts, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->hidden, c->intermediate },
					     { 3 * c->hidden, c->hidden },
					     { c->hidden, c->hidden },
					     { c->hidden, out },
					     { mlp, c->hidden },
					     { mlp, c->hidden },
					     { c->hidden, mlp },
					     { 2 * mlp, c->hidden },
					     { c->hidden, mlp },
					     { c->experts, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->intermediate, c->hidden },
					     { c->hidden, c->intermediate },
					     { c->heads, c->hidden } };
	dim[0] = dim[1] = 0;
	if (layer_has_linear(c, layer, l))
		memcpy(dim, dims[l], sizeof dims[l]);
}

const char *layer_norm_name(const struct model_config *c, enum layer_norm n)
{
	static const char *const names[][NORM_COUNT] = {
		[NORMS_BEFORE] = { [NORM_ATTN_IN] = "input_layernorm",
				   [NORM_MLP_IN] = "post_attention_layernorm" },
		[NORMS_BEHIND] = { [NORM_ATTN_OUT] = "post_attention_layernorm",
				   [NORM_MLP_OUT] = "post_feedforward_layernorm" },
		[NORMS_GEMMA] = { [NORM_ATTN_IN] = "input_layernorm",
				  [NORM_ATTN_OUT] = "post_attention_layernorm",
				  [NORM_MLP_IN] = "pre_feedforward_layernorm",
				  [NORM_MLP_OUT] = "post_feedforward_layernorm",
				  [NORM_SIDE_MLP] = "post_feedforward_layernorm_1",
				  [NORM_SIDE_IN] = "pre_feedforward_layernorm_2",
				  [NORM_SIDE_OUT] = "post_feedforward_layernorm_2" },
		[NORMS_GLM] = { [NORM_ATTN_IN] = "input_layernorm",
				[NORM_ATTN_OUT] = "post_self_attn_layernorm",
				[NORM_MLP_IN] = "post_attention_layernorm",
				[NORM_MLP_OUT] = "post_mlp_layernorm" },
		[NORMS_LFM2] = { [NORM_ATTN_IN] = "operator_norm", [NORM_MLP_IN] = "ffn_norm" },
		[NORMS_LFM3] = { [NORM_ATTN_IN] = "operator_norm",
				 [NORM_ATTN_OUT] = "post_operator_norm",
				 [NORM_MLP_IN] = "ffn_norm",
				 [NORM_MLP_OUT] = "post_ffn_norm" },
	};
	return n < NORM_SIDE_MLP || c->beside ? names[c->norms][n] : NULL;
}

const char *final_norm_name(const struct model_config *c)
{
	return c->lfm2 ? "model.embedding_norm.weight" : "model.norm.weight";
}

const char *delta_param_name(const struct model_config *c, enum delta_param p)
{
	static const char *const names[] = { "linear_attn.conv1d.weight", "linear_attn.A_log",
					     "linear_attn.dt_bias", "linear_attn.norm.weight" };
	return !c->lfm2 ? names[p] : p == DELTA_CONV ? "conv.conv.weight" : NULL;
}

int64_t delta_channels(const struct model_config *c)
{
	return c->lfm2 ? c->hidden : delta_width(&c->delta_heads);
}

int64_t delta_param_count(const struct model_config *c, enum delta_param p)
{
	const struct delta_heads *h = &c->delta_heads;
	return p == DELTA_CONV   ? delta_channels(c) * c->delta_conv
	       : p == DELTA_NORM ? h->dv
				 : h->values;
}

const char *router_param_name(enum router_param p)
{
	static const char *const names[] = { "router.scale", "router.per_expert_scale" };
	return names[p];
}

int64_t router_param_count(const struct model_config *c, enum router_param p)
{
	return p == ROUTER_NORM ? c->hidden : c->experts;
}

const char *correction_name(const struct model_config *c)
{
	return c->correction == CORRECTION_GATE      ? "mlp.gate" MODEL_CORRECTION
	       : c->correction == CORRECTION_STATICS ? "mlp.moe_statics" MODEL_CORRECTION
	       : c->correction == CORRECTION_FF      ? "feed_forward" MODEL_FF_CORRECTION
						     : NULL;
}

bool name_is_correction(const char *name)
{
	return strstr(name, MODEL_CORRECTION) || strstr(name, MODEL_FF_CORRECTION);
}

int model_file_shape(const struct model_config *c, const char *name, int ndim, int64_t *shape)
{
	const char *conv = delta_param_name(c, DELTA_CONV);
	const size_t len = strlen(name), tail = strlen(conv);
	if (c->correction == CORRECTION_STATICS && ndim == 1 && name_is_correction(name)) {
		shape[1] = shape[0];
		shape[0] = 1;
		return 2;
	}
	if (!c->delta_layers || ndim != 1 || len < tail || strcmp(name + len - tail, conv) != 0)
		return ndim;
	shape[0] /= c->delta_conv;
	shape[1] = 1;
	shape[2] = c->delta_conv;
	return 3;
}

const char *linear_norm(const struct model_config *c, int64_t layer, enum linear l,
			int64_t *width_p)
{
	const int64_t heads = l == LIN_Q ? c->heads : layer_kv_heads(c, layer);
	*width_p = l == LIN_Q_A    ? c->latent.q
		   : l == LIN_KV_A ? c->latent.kv
				   : layer_head_dim(c, layer) * (c->qk_norm_whole ? heads : 1);
	return l == LIN_Q_A && c->latent.q         ? "self_attn.q_a_layernorm.weight"
	       : l == LIN_KV_A && c->latent.kv     ? "self_attn.kv_a_layernorm.weight"
	       : !c->qk_norm || l > LIN_K          ? NULL
	       : c->lfm2 && !c->lfm3 && l == LIN_Q ? "self_attn.q_layernorm.weight"
	       : c->lfm2 && !c->lfm3               ? "self_attn.k_layernorm.weight"
	       : l == LIN_Q                        ? "self_attn.q_norm.weight"
						   : "self_attn.k_norm.weight";
}

bool linear_has_bias(const struct model_config *c, enum linear l)
{
	return l <= LIN_V || l == LIN_QKV ? c->qkv_bias
	       : l == LIN_O               ? c->o_bias
	       : l <= LIN_GATE_UP         ? c->mlp_bias
	       : l >= LIN_SIDE_ROUTER     ? false
	       : l >= LIN_Q_A             ? c->latent.bias && (l == LIN_Q_A || l == LIN_KV_A)
					  : c->expert_bias && l < LIN_SHARED_GATE;
}

int64_t model_width(const struct model_config *c, int64_t index)
{
	const struct own_model *m = &c->own;
	if (!m->n)
		return c->hidden;
	return index < c->layers ? own_count(&m->block[m->first[index]].in)
				 : own_count(&m->loss.in);
}

/* ---- the keys ---- */

/* Read by the common reader. */
static const char *const used[] = { "model_type",
				    "hidden_size",
				    "intermediate_size",
				    "num_hidden_layers",
				    "num_attention_heads",
				    "num_key_value_heads",
				    "head_dim",
				    "vocab_size",
				    "rms_norm_eps",
				    "rope_theta",
				    "rope_scaling",
				    "rope_parameters",
				    "tie_word_embeddings",
				    "max_position_embeddings",
				    "hidden_act",
				    "hidden_activation",
				    "quantization_config",
				    "attention_dropout",
				    "rope_interleaved",
				    "partial_rotary_factor",
				    NULL };

/* Do not change what is computed here. */
static const char *const harmless[] = { "architectures",
					"torch_dtype",
					"dtype",
					"transformers_version",
					"use_cache",
					"initializer_range",
					"bos_token_id",
					"eos_token_id",
					"pad_token_id",
					"unk_token_id",
					"_name_or_path",
					"name_or_path",
					"_model_name_or_path",
					"auto_map",
					"is_llama_config",
					"pretraining_tp",
					"unsloth_fixed",
					"unsloth_version",
					"transformers.js_config",
					"_attn_implementation",
					"_attn_implementation_autoset",
					"_flash_attn_2_enabled",
					"model_name",
					"license",
					"return_dict",
					"output_attentions",
					"output_hidden_states",
					"torchscript",
					"is_decoder",
					"is_encoder_decoder",
					"add_cross_attention",
					"cross_attention_hidden_size",
					"chunk_size_feed_forward",
					"problem_type",
					"id2label",
					"label2id",
					"task_specific_params",
					"tokenizer_class",
					"prefix",
					"finetuning_task",
					"neftune_noise_alpha",
					NULL };

static bool in_list(const char *const *list, const char *key)
{
	for (; list && *list; list++)
		if (!strcmp(*list, key))
			return true;
	return false;
}

static int check_keys(const json_t *j, const struct model_family *f, const char *where,
		      struct err *e)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)j, key, v)
	{
		if (json_is_null(v) || in_list(used, key) || in_list(harmless, key) ||
		    in_list(f->keys, key))
			continue;
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the field '%s' is not known for model_type '%s' and might "
			       "change the model",
			       where, key, json_string_value(json_object_get(j, "model_type")));
	}
	return 0;
}

/* Keys that are only allowed to have the value with which they change nothing. */
static int check_fixed(const json_t *j, const struct model_family *f, const char *where,
		       struct err *e)
{
	const char *key = "hidden_activation", *act = f->gelu ? "gelu_pytorch_tanh" : "silu";
	double drop = 0;
	bool interleaved = false;
	const json_t *types = json_object_get(j, "layer_types");
	if (types && !json_is_null(types) && !json_is_array(types))
		return err_set(e, ERR_INPUT,
			       "%s: 'layer_types' must be a list with a name for each layer",
			       where);
	if (!json_is_string(json_object_get(j, key)))
		key = "hidden_act";
	TRY(json_opt_str(j, where, key, &act, e));
	TRY(json_opt_num(j, where, "attention_dropout", 0, 1, &drop, e));
	TRY(json_opt_bool(j, where, "rope_interleaved", &interleaved, e));
	if (f->gelu ? strcmp(act, "gelu_pytorch_tanh") != 0
		    : strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
		return err_set(e, ERR_UNSUPPORTED, "%s: '%s' is '%s'; only %s is supported", where,
			       key, act, f->gelu ? "gelu_pytorch_tanh" : "silu");
	if (drop > 0 && !f->drops)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'attention_dropout' is %g; only 0 is supported", where, drop);
	if (interleaved)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'rope_interleaved' is true; only false is supported", where);
	return 0;
}

static int refuse_family(const char *where, const char *type, struct err *e)
{
	char known[512] = "";
	size_t at = 0;
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		for (const char *const *t = families[i]->model_types; *t && at < sizeof known; t++)
			at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
					       at ? ", " : "", *t);
	return err_set(e, ERR_UNSUPPORTED, "%s: model_type '%.60s' is not supported; these are: %s",
		       where, type, known);
}

static int read_head_dim(const json_t *j, const struct model_family *f, const char *where,
			 struct model_config *c, struct err *e)
{
	c->head_dim = f->head_dim ? f->head_dim : c->hidden / c->heads;
	bool has_dim = f->head_dim || json_is_integer(json_object_get(j, "head_dim"));
	TRY(json_opt_int(j, where, "head_dim", 2, MODEL_HEAD_DIM_MOST, &c->head_dim, e));
	if ((!has_dim && c->hidden % c->heads) || c->head_dim % 2 || c->head_dim < 2 ||
	    c->head_dim > MODEL_HEAD_DIM_MOST)
		return err_set(e, ERR_INPUT,
			       "%s: hidden_size %lld and num_attention_heads %lld give no even "
			       "head width up to %d",
			       where, (long long)c->hidden, (long long)c->heads,
			       MODEL_HEAD_DIM_MOST);
	return f->rope ? 0 : rope_read(j, f, where, c, e);
}

int model_config_read(const json_t *j, const char *where, struct model_config *c_p, struct err *e)
{
	const char *type;
	TRY(json_need_str(j, where, "model_type", &type, e));
	const struct model_family *f = NULL;
	for (size_t i = 0; i < ARRAY_LEN(families) && !f; i++)
		if (in_list(families[i]->model_types, type))
			f = families[i];
	if (!f)
		return refuse_family(where, type, e);
	TRY(check_keys(j, f, where, e));
	if (f->own) {
		memset(c_p, 0, sizeof *c_p);
		c_p->family = f->name;
		return f->read(j, where, c_p, e);
	}
	TRY(check_fixed(j, f, where, e));
	struct model_config c = { .family = f->name,
				  .norm_eps = f->norm_eps > 0 ? f->norm_eps : 1e-6,
				  .tied = f->tied,
				  .gelu = f->gelu };
	TRY(json_need_int(j, where, "hidden_size", 1, 1 << 20, &c.hidden, e));
	TRY((f->no_mlp ? json_opt_int : json_need_int)(j, where, "intermediate_size", 1, 1 << 22,
						       &c.intermediate, e));
	TRY(json_need_int(j, where, "num_hidden_layers", 1, MODEL_LAYERS_MOST, &c.layers, e));
	TRY(json_need_int(j, where, "num_attention_heads", 1, 4096, &c.heads, e));
	TRY(json_need_int(j, where, "vocab_size", 1, 1 << 24, &c.vocab, e));
	c.kv_heads = c.heads;
	TRY(json_opt_int(j, where, "num_key_value_heads", 1, 4096, &c.kv_heads, e));
	TRY(json_opt_int(j, where, "max_position_embeddings", 1, 1ll << 40, &c.max_positions, e));
	TRY(json_opt_num(j, where, "rms_norm_eps", 0, 1, &c.norm_eps, e));
	TRY(json_opt_bool(j, where, "tie_word_embeddings", &c.tied, e));
	if (c.heads % c.kv_heads)
		return err_set(e, ERR_INPUT,
			       "%s: num_attention_heads %lld is not a multiple of "
			       "num_key_value_heads %lld",
			       where, (long long)c.heads, (long long)c.kv_heads);
	TRY((f->latent ? latent_read : read_head_dim)(j, f, where, &c, e));
	TRY(f->read(j, where, &c, e));
	const char *method = json_string_value(
		json_object_get(json_object_get(j, "quantization_config"), "quant_method"));
	c.experts_mx = method && !strcmp(method, "mxfp4");
	*c_p = c;
	return 0;
}

int model_knows_tensor(const struct model_config *c, const char *name)
{
	int at = 0;
	struct own_param p;
	if (c->own.n)
		return own_param_find(&c->own, name, &p) ? 1 : -1;
	if (!strcmp(name, "model.embed_tokens.weight") || !strcmp(name, final_norm_name(c)))
		return 1;
	if (!strcmp(name, "lm_head.weight"))
		return c->tied ? 0 : 1;
	size_t len = strlen(name);
	if ((len > 9 && !strcmp(name + len - 9, ".inv_freq")) ||
	    (c->has_mtp && (!strncmp(name, "mtp.", 4) || !strncmp(name, "model.mtp_", 10))))
		return 0;
	long long parsed = -1;
	if (sscanf(name, "model.layers.%lld.%n", &parsed, &at) != 1 || !at || parsed < 0 ||
	    parsed >= c->layers + c->extra_layers)
		return -1;
	if (parsed >= c->layers)
		return 0;
	const char *rest = name + at;
	for (enum layer_norm k = 0; k < NORM_COUNT; k++) {
		const char *norm = layer_norm_name(c, k);
		size_t n = norm ? strlen(norm) : 0;
		if (n && !strncmp(rest, norm, n) && !strcmp(rest + n, ".weight"))
			return 1;
	}
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		int64_t width;
		const char *norm = linear_norm(c, parsed, l, &width);
		if (norm && !strcmp(rest, norm))
			return layer_has_linear(c, parsed, l) ? 1 : -1;
	}
	if (!strcmp(rest, "self_attn.sinks"))
		return c->sinks && !c->delta[parsed] ? 1 : -1;
	for (enum delta_param k = 0; k < DELTA_PARAMS && delta_param_name(c, k); k++)
		if (!strcmp(rest, delta_param_name(c, k)))
			return c->delta[parsed] ? 1 : -1;
	if (!strcmp(rest, MODEL_LAYER_SCALAR))
		return c->layer_scalar ? 1 : -1;
	for (enum router_param k = 0; k < ROUTER_PARAMS; k++)
		if (!strcmp(rest, router_param_name(k)))
			return c->beside && layer_is_mixture(c, parsed) ? 1 : -1;
	const char *correction = correction_name(c);
	if (correction && !strcmp(rest, correction))
		return layer_is_mixture(c, parsed) ? 1 : -1;
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		int64_t expert;
		const char *tail = linear_behind(l, rest, &expert);
		const bool there = tail && expert < linear_copies(c, parsed, l);
		if (tail && !strcmp(tail, ".weight"))
			return there ? 1 : -1;
		if (tail && !strcmp(tail, ".bias"))
			return there && linear_has_bias(c, l) ? 1 : -1;
	}
	return -1;
}
