/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_config.c - see gguf_config.h. Defaults are those of llama.cpp where a key may be missing. */
#include "file/gguf_config.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/ggml_blocks.h"
#include "file/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys that change the mathematics of other models written under the same architecture; harmless
 * only at these values. */
static bool is_read(const struct gguf_keys *m, const char *name);

static int refuse_unknown(const struct gguf_keys *m, struct err *e)
{
	static const struct {
		const char *name;
		double harmless;
	} rows[] = {
		{ "expert_count", 0 },
		{ "expert_shared_count", 0 },
		{ "expert_weights_scale", 0 },
		{ "attention.scale", 0 },
		{ "attention.clamp_kqv", 0 },
		{ "attention.max_alibi_bias", 0 },
		{ "attn_logit_softcapping", 0 },
		{ "final_logit_softcapping", 0 },
		{ "logit_scale", 0 },
		{ "embedding_scale", 0 },
		{ "residual_scale", 0 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		double v = rows[i].harmless;
		if (is_read(m, rows[i].name))
			continue;
		TRY(keys_number(m, rows[i].name, false, -1e30, 1e30, &v, e));
		if (v != rows[i].harmless)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s.%s' is %g, which is not supported", m->g->path,
				       m->arch->name, rows[i].name, v);
	}
	return 0;
}

/* Numbers that only some architectures have, and what config.json calls them. */
static const struct {
	const char *arch, *gguf, *hf;
} numbers[] = {
	{ "granite", "embedding_scale", "embedding_multiplier" },
	{ "granite", "residual_scale", "residual_multiplier" },
	{ "granite", "attention.scale", "attention_multiplier" },
	{ "granite", "logit_scale", "logits_scaling" },
	{ "gemma2", "attn_logit_softcapping", "attn_logit_softcapping" },
	{ "gemma2", "final_logit_softcapping", "final_logit_softcapping" },
	{ "gemma3", "final_logit_softcapping", "final_logit_softcapping" },
	{ "gemma3", "rope.freq_base_swa", "rope_local_base_freq" },
	{ "glm4moe", "expert_weights_scale", "routed_scaling_factor" },
	{ "lfm2moe", "expert_weights_scale", "routed_scaling_factor" },
};

static bool is_read(const struct gguf_keys *m, const char *name)
{
	if (m->arch->experts && !strcmp(name, "expert_count"))
		return true;
	if ((m->arch->experts == GGUF_EXPERTS_GLM || m->arch->experts == GGUF_EXPERTS_ERNIE) &&
	    !strcmp(name, "expert_shared_count"))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (!strcmp(numbers[i].arch, m->arch->name) && !strcmp(numbers[i].gguf, name))
			return true;
	return m->arch->two_kinds && !strcmp(name, "final_logit_softcapping");
}

static int read_numbers(const struct gguf_keys *m, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		double v = 0;
		if (strcmp(numbers[i].arch, m->arch->name) || !keys_find(m, numbers[i].gguf))
			continue;
		TRY(keys_number(m, numbers[i].gguf, true, 1e-9, 1e9, &v, e));
		json_object_set_new(m->o, numbers[i].hf, json_real(v));
	}
	return 0;
}

static int read_text(const struct gguf_keys *m, const char *key, const char *fallback, char *s,
		     size_t room, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(m->g, key);
	snprintf(s, room, "%s", fallback);
	if (!kv)
		return 0;
	json_t *v = NULL;
	TRY(gguf_kv_one(m->g, kv, &v, e));
	if (json_is_string(v))
		snprintf(s, room, "%s", json_string_value(v));
	bool ok = json_is_string(v);
	json_decref(v);
	return ok ? 0 : err_set(e, ERR_INPUT, "%s: '%s' must be a text", m->g->path, key);
}

static int read_factors(const struct gguf_keys *m, const struct gguf_tensor *t, int64_t rot,
			struct err *e)
{
	json_t *list;
	TRY(keys_factors(m, t, rot, &list, e));
	json_object_set_new(m->o, "rope_scaling",
			    json_pack("{s:s,s:o}", "rope_type", "gguf_factors", "factors", list));
	return 0;
}

/* LongRoPE: two vectors, the length they part at, and the factor on sin and cos. */
static int read_longrope(const struct gguf_keys *m, const struct gguf_tensor *more, int64_t rot,
			 struct err *e)
{
	const struct gguf_tensor *less = gguf_tensor_find(m->g, "rope_factors_short.weight");
	double context = 0, attention = 1;
	json_t *a, *b;
	TRY(keys_number(m, "rope.scaling.original_context_length", true, 2, GGUF_INT_MOST, &context,
			e));
	TRY(keys_number(m, "rope.scaling.attn_factor", false, 1e-6, 1e6, &attention, e));
	if (!less)
		return err_set(e, ERR_INPUT, "%s: has 'rope_factors_long.weight' and no short one",
			       m->g->path);
	TRY(keys_factors(m, more, rot, &a, e));
	int rc = keys_factors(m, less, rot, &b, e);
	if (rc < 0) {
		json_decref(a);
		return rc;
	}
	json_object_set_new(m->o, "rope_scaling",
			    json_pack("{s:s,s:o,s:o,s:I,s:f}", "rope_type", "longrope",
				      "long_factor", a, "short_factor", b,
				      "original_max_position_embeddings", (json_int_t)context,
				      "attention_factor", attention));
	return 0;
}

static int rope_scaling(const struct gguf_keys *m, int64_t head_dim, struct err *e)
{
	const struct gguf_tensor *more = gguf_tensor_find(m->g, "rope_factors_long.weight");
	if (more)
		return read_longrope(m, more, head_dim, e);
	char key[128], type[64];
	double factor = 0, context = 0;
	snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch->name);
	TRY(read_text(m, key, "", type, sizeof type, e));
	TRY(keys_number(m, "rope.scaling.factor", false, 0, 1e6, &factor, e));
	if (!*type && !factor) { /* the older spelling */
		TRY(keys_number(m, "rope.scale_linear", false, 0, 1e6, &factor, e));
	}
	TRY(keys_number(m, "rope.scaling.original_context_length", false, 0, GGUF_INT_MOST,
			&context, e));
	const struct gguf_tensor *t = gguf_tensor_find(m->g, "rope_freqs.weight");
	json_object_set_new(m->o, "rope_scaling", json_null());
	if (t)
		TRY(read_factors(m, t, head_dim, e));
	if (!strcmp(type, "none") || factor == 0 || factor == 1)
		return 0;
	if (t || (*type && strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: rope scaling of the kind '%s'%s is not supported", m->g->path,
			       type, t ? " together with 'rope_freqs.weight'" : "");
	if (!strcmp(type,
		    "yarn")) /* that of gpt-oss is not cut to whole places, which no key says */
		json_object_set_new(m->o, "rope_scaling",
				    json_pack("{s:s,s:f,s:I,s:b}", "rope_type", "yarn", "factor",
					      factor, "original_max_position_embeddings",
					      (json_int_t)context, "truncate",
					      m->arch->experts != GGUF_EXPERTS_OSS));
	else
		json_object_set_new(
			m->o, "rope_scaling",
			json_pack("{s:s,s:f}", "rope_type", "linear", "factor", factor));
	return 0;
}

/* LFM2: a list says how many heads of keys and values a layer has, 0 where it has a short
 * convolution instead. */
static int read_lfm2(const struct gguf_keys *m, int64_t *kv_p, struct err *e)
{
	static const char *const type[] = { "conv", "full_attention" };
	const struct gguf_kv *kv = keys_find(m, "attention.head_count_kv");
	const int64_t layers = json_integer_value(json_object_get(m->o, "num_hidden_layers"));
	int64_t seen = 0, conv = 0;
	json_t *list = NULL, *types;
	bool ok = true;
	TRY(keys_integer(m, "shortconv.l_cache", true, 2, &conv, e));
	if (!kv || !kv->array)
		return err_set(e, ERR_INPUT, "%s: '%s.attention.head_count_kv' must be a list",
			       m->g->path, m->arch->name);
	TRY(gguf_kv_json(m->g, kv, &list, e));
	types = json_array();
	ok = (int64_t)json_array_size(list) == layers;
	for (int64_t i = 0; i < layers && ok; i++) {
		const json_int_t n = json_integer_value(json_array_get(list, (size_t)i));
		ok = n >= 0 && n <= GGUF_INT_MOST && (!n || !seen || n == seen);
		seen = n ? n : seen;
		json_array_append_new(types, json_string(type[n > 0]));
	}
	json_decref(list);
	json_object_set_new(m->o, "layer_types", types);
	if (!ok)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: '%s' must be a list of %lld layers, 0 or the same number",
			       m->g->path, kv->key, (long long)layers);
	*kv_p = seen ? seen : *kv_p;
	keys_set(m, "conv_L_cache", conv);
	if (!m->arch->experts)
		json_object_set_new(m->o, "block_auto_adjust_ff_dim", json_false());
	return 0;
}

/* Reads the width of a head; a head that is rotated only in part is refused. */
static int read_heads(const struct gguf_keys *m, int64_t hidden, struct err *e)
{
	int64_t n = 0, kv = 0, d = 0, v = 0, rot = 0;
	TRY(keys_integer(m, "attention.head_count", true, 1, &n, e));
	kv = n;
	if (m->arch->norms == GGUF_NORMS_LFM2)
		TRY(read_lfm2(m, &kv, e));
	else
		TRY(keys_integer(m, "attention.head_count_kv", false, 1, &kv, e));
	TRY(keys_integer(m, "rope.dimension_count", false, 1, &rot, e));
	d = hidden / n;
	TRY(keys_integer(m, "attention.key_length", false, 1, &d, e));
	rot = rot ? rot : d;
	v = d;
	TRY(keys_integer(m, "attention.value_length", false, 1, &v, e));
	if (n % kv)
		return err_set(e, ERR_INPUT,
			       "%s: %lld heads are not a multiple of %lld key/value heads",
			       m->g->path, (long long)n, (long long)kv);
	if (d < 2 || d % 2 || v != d || rot > d || (rot != d && !m->arch->partial))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: heads of width %lld (values %lld, rotated %lld) are not "
			       "supported: all three must be the same "
			       "even number",
			       m->g->path, (long long)d, (long long)v, (long long)rot);
	keys_set(m, "num_attention_heads", n);
	keys_set(m, "num_key_value_heads", kv);
	keys_set(m, "head_dim", d);
	if (m->arch->partial)
		json_object_set_new(m->o, "partial_rotary_factor",
				    json_real((double)rot / (double)d));
	return rope_scaling(m, rot, e);
}

/* Qwen2-MoE: the width of the expert that every token has is `ffn` where no key says it. */
static int read_qwen2moe(const struct gguf_keys *m, int64_t ffn, struct err *e)
{
	TRY(keys_integer(m, "expert_shared_feed_forward_length", ffn < 1, 1, &ffn, e));
	keys_set(m, "shared_expert_intermediate_size", ffn);
	if (m->arch->linear)
		return 0;
	json_object_set_new(m->o, "qkv_bias",
			    json_boolean(gguf_tensor_find(m->g, "blk.0.attn_q.bias") != NULL));
	return 0;
}

static int need_sigmoid(const struct gguf_keys *m, struct err *e)
{
	enum { SIGMOID = 2 };
	int64_t how = SIGMOID;
	TRY(keys_integer(m, "expert_gating_func", false, 0, &how, e));
	return how == 0 || how == SIGMOID
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "%s: '%s.expert_gating_func' is %lld; only 2 (sigmoid) is "
				 "supported",
				 m->g->path, m->arch->name, (long long)how);
}

/* LFM2: which layers have no experts, and whether the others have a correction. */
static int read_lfm2moe(const struct gguf_keys *m, struct err *e)
{
	int64_t dense = 0;
	char name[64];
	TRY(keys_integer(m, "leading_dense_block_count", false, 0, &dense, e));
	TRY(need_sigmoid(m, e));
	snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)dense);
	keys_set(m, "num_dense_layers", dense);
	json_object_set_new(m->o, "use_expert_bias",
			    json_boolean(gguf_tensor_find(m->g, name) != NULL));
	json_object_set_new(m->o, "norm_topk_prob", json_true());
	return 0;
}

/* GLM-4: what chooses and weighs experts, how many every token has, which layers have none. */
static int read_glm4moe(const struct gguf_keys *m, struct err *e)
{
	const struct gguf_kv *kv = keys_find(m, "expert_weights_norm");
	int64_t shared = 1, dense = 0, extra = 0;
	json_t *norm = NULL;
	TRY(keys_integer(m, "expert_shared_count", false, 1, &shared, e));
	TRY(keys_integer(m, "leading_dense_block_count", false, 0, &dense, e));
	TRY(keys_integer(m, "nextn_predict_layers", false, 0, &extra, e));
	TRY(need_sigmoid(m, e));
	if (kv)
		TRY(gguf_kv_one(m->g, kv, &norm, e));
	json_object_set_new(m->o, "norm_topk_prob", json_boolean(json_is_true(norm)));
	json_decref(norm);
	keys_set(m, "n_shared_experts", shared);
	keys_set(m, "first_k_dense_replace", dense);
	keys_set(m, "num_nextn_predict_layers", extra);
	json_object_set_new(
		m->o, "use_qk_norm",
		json_boolean(gguf_tensor_find(m->g, "blk.0.attn_q_norm.weight") != NULL));
	return 0;
}

/* ERNIE: how many experts every token has, which layers have none. */
static int read_ernie(const struct gguf_keys *m, struct err *e)
{
	int64_t shared = 0, dense = 0, step = 1;
	TRY(keys_integer(m, "expert_shared_count", false, 0, &shared, e));
	TRY(keys_integer(m, "leading_dense_block_count", false, 0, &dense, e));
	TRY(keys_integer(m, "interleave_moe_layer_step", false, 1, &step, e));
	keys_set(m, "moe_num_shared_experts", shared);
	keys_set(m, "moe_layer_start_index", dense);
	keys_set(m, "moe_layer_interval", step);
	return 0;
}

/* Which layers have linear attention: a list, or all but every n-th. */
static int read_layers(const struct gguf_keys *m, int64_t layers, struct err *e)
{
	enum { MOST = 1 << 16 };
	static const char *const type[] = { "full_attention", "linear_attention" };
	const struct gguf_kv *kv = keys_find(m, "attention.recurrent_layers");
	int64_t every = 4;
	json_t *list = NULL, *types;
	TRY(keys_integer(m, "full_attention_interval", false, 1, &every, e));
	if (layers > MOST)
		return err_set(e, ERR_INPUT, "%s: '%s.block_count' is more than %d", m->g->path,
			       m->arch->name, MOST);
	if (kv)
		TRY(gguf_kv_json(m->g, kv, &list, e));
	if (list && (!json_is_array(list) || (int64_t)json_array_size(list) < layers)) {
		json_decref(list);
		return err_set(e, ERR_INPUT, "%s: '%s' must be a list of %lld layers", m->g->path,
			       kv->key, (long long)layers);
	}
	types = json_array();
	for (int64_t i = 0; i < layers; i++) {
		const bool linear =
			list ? json_is_true(json_array_get(list, (size_t)i)) : (i + 1) % every != 0;
		json_array_append_new(types, json_string(type[linear]));
	}
	json_decref(list);
	json_object_set_new(m->o, "layer_types", types);
	return 0;
}

/* Linear attention; its values are as wide as `inner_size` over their heads. */
static int read_linear(const struct gguf_keys *m, struct err *e)
{
	static const struct {
		const char *gguf, *hf;
	} row[] = { { "ssm.conv_kernel", "linear_conv_kernel_dim" },
		    { "ssm.state_size", "linear_key_head_dim" },
		    { "ssm.group_count", "linear_num_key_heads" },
		    { "ssm.time_step_rank", "linear_num_value_heads" } };
	int64_t v = 0, inner = 0, extra = 0;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		TRY(keys_integer(m, row[i].gguf, true, 1, &v, e));
		if (v > GGUF_LINEAR_MOST)
			return err_set(e, ERR_INPUT, "%s: '%s.%s' is more than %d", m->g->path,
				       m->arch->name, row[i].gguf, GGUF_LINEAR_MOST);
		keys_set(m, row[i].hf, v);
	}
	TRY(keys_integer(m, "ssm.inner_size", true, 1, &inner, e));
	TRY(keys_integer(m, "nextn_predict_layers", false, 0, &extra, e));
	if (inner % v || inner / v > GGUF_LINEAR_MOST)
		return err_set(e, ERR_INPUT,
			       "%s: '%s.ssm.inner_size' %lld does not go with %lld value heads",
			       m->g->path, m->arch->name, (long long)inner, (long long)v);
	keys_set(m, "linear_value_head_dim", inner / v);
	keys_set(m, "num_nextn_predict_layers", extra);
	return 0;
}

/* How many experts there are and a token has. Their width is `ffn` where no key says it; where
 * there are no others, it becomes `ffn`. */
static int read_experts(const struct gguf_keys *m, int64_t *ffn_p, struct err *e)
{
	const enum gguf_experts kind = m->arch->experts;
	int64_t n = 0, used = 0, width = *ffn_p;
	TRY(keys_integer(m, "expert_count", true, 1, &n, e));
	TRY(keys_integer(m, "expert_used_count", true, 1, &used, e));
	TRY(keys_integer(m, "expert_feed_forward_length", width < 1, 1, &width, e));
	if (n > GGUF_EXPERTS_MOST || used > n)
		return err_set(e, ERR_INPUT,
			       "%s: a token goes to %lld of %lld experts; at most all of them and "
			       "%d experts are possible",
			       m->g->path, (long long)used, (long long)n, GGUF_EXPERTS_MOST);
	keys_set(m, gguf_experts_key(kind), n);
	keys_set(m, kind == GGUF_EXPERTS_SIDE ? "top_k_experts" : "num_experts_per_tok", used);
	if (kind == GGUF_EXPERTS_MLP || kind == GGUF_EXPERTS_QWEN2)
		json_object_set_new(m->o, "norm_topk_prob", json_boolean(m->arch->whole));
	if (!strcmp(m->arch->name, "qwen3moe") || kind >= GGUF_EXPERTS_QWEN2)
		keys_set(m, "moe_intermediate_size", width);
	const struct gguf_tensor *first = gguf_tensor_find(m->g, "blk.0.ffn_gate_exps.weight");
	if (kind == GGUF_EXPERTS_OSS && first && first->type == GGML_MXFP4)
		json_object_set_new(m->o, "quantization_config",
				    json_pack("{s:s}", "quant_method", "mxfp4"));
	if (kind == GGUF_EXPERTS_QWEN2)
		TRY(read_qwen2moe(m, *ffn_p, e));
	else if (kind == GGUF_EXPERTS_GLM)
		TRY(read_glm4moe(m, e));
	else if (kind == GGUF_EXPERTS_ERNIE)
		TRY(read_ernie(m, e));
	else if (kind == GGUF_EXPERTS_LFM2)
		TRY(read_lfm2moe(m, e));
	else if (kind == GGUF_EXPERTS_SIDE)
		json_object_set_new(m->o, "enable_moe_block", json_true());
	else
		*ffn_p = width;
	return 0;
}

static int token_ids(const struct gguf_keys *m, struct err *e)
{
	static const char *const key[][2] = {
		{ "tokenizer.ggml.bos_token_id", "bos_token_id" },
		{ "tokenizer.ggml.eos_token_id", "eos_token_id" },
		{ "tokenizer.ggml.padding_token_id", "pad_token_id" },
	};
	for (size_t i = 0; i < ARRAY_LEN(key); i++) {
		const struct gguf_kv *kv = gguf_find(m->g, key[i][0]);
		json_t *v = NULL;
		if (!kv)
			continue;
		TRY(gguf_kv_one(m->g, kv, &v, e));
		if (!json_is_integer(v)) {
			json_decref(v);
			return err_set(e, ERR_INPUT, "%s: '%s' must be a whole number", m->g->path,
				       kv->key);
		}
		json_object_set_new(m->o, key[i][1], v);
	}
	return 0;
}

static int make(const struct gguf_keys *m, struct err *e)
{
	int64_t hidden = 0, ffn = 0, layers = 0, context = 0, window = 0;
	double eps = 0, theta = 10000;
	const struct gguf_tensor *embd = gguf_tensor_find(m->g, "token_embd.weight");
	if (!embd || embd->ndim != 2)
		return err_set(e, ERR_INPUT,
			       "%s: the tensor 'token_embd.weight' is missing or not a matrix",
			       m->g->path);
	TRY(refuse_unknown(m, e));
	TRY(keys_integer(m, "embedding_length", true, 1, &hidden, e));
	TRY(keys_integer(m, "feed_forward_length", !m->arch->no_mlp, 1, &ffn, e));
	TRY(keys_integer(m, "block_count", true, 1, &layers, e));
	TRY(keys_integer(m, "context_length", true, 1, &context, e));
	TRY(keys_integer(m, "attention.sliding_window", false, 0, &window, e));
	TRY(keys_number(m, "attention.layer_norm_rms_epsilon", true, 0, 1, &eps, e));
	TRY(keys_number(m, "rope.freq_base", false, 1, 1e12, &theta, e));
	if (m->arch->experts)
		TRY(read_experts(m, &ffn, e));
	if (m->arch->linear)
		TRY(read_linear(m, e));
	json_object_set_new(m->o, "model_type", json_string(m->arch->model_type));
	keys_set(m, "hidden_size", hidden);
	if (ffn)
		keys_set(m, "intermediate_size", ffn);
	layers -= json_integer_value(json_object_get(m->o, "num_nextn_predict_layers"));
	if (layers < 1)
		return err_set(e, ERR_INPUT, "%s: '%s.block_count' leaves no layer", m->g->path,
			       m->arch->name);
	keys_set(m, "num_hidden_layers", layers);
	if (m->arch->linear)
		TRY(read_layers(m, layers, e));
	TRY(m->arch->two_kinds ? gguf_config_gemma4(m, theta, e) : read_heads(m, hidden, e));
	json_object_set_new(m->o, m->arch->norms == GGUF_NORMS_LFM2 ? "norm_eps" : "rms_norm_eps",
			    json_real(eps));
	if (!m->arch->two_kinds)
		json_object_set_new(m->o, "rope_theta", json_real(theta));
	keys_set(m, "vocab_size", embd->ne[1]);
	keys_set(m, "max_position_embeddings", context);
	json_object_set_new(m->o, "tie_word_embeddings",
			    json_boolean(!gguf_tensor_find(m->g, "output.weight")));
	const bool gemma = !strncmp(m->arch->name, "gemma", 5);
	json_object_set_new(m->o, "hidden_act", json_string(gemma ? "gelu_pytorch_tanh" : "silu"));
	TRY(read_numbers(m, e));
	if (m->arch->norms == GGUF_NORMS_GEMMA && gemma) {
		/* the largest models divide by another width, which no key says */
		const bool largest = layers == (m->arch->name[5] == '2' ? 46 : 62);
		const int64_t heads =
			json_integer_value(json_object_get(m->o, "num_attention_heads"));
		keys_set(m, "query_pre_attn_scalar",
			 largest ? hidden / heads
				 : json_integer_value(json_object_get(m->o, "head_dim")));
	}
	const bool mistral = !strcmp(m->arch->model_type, "mistral");
	if ((m->arch->permuted && !m->arch->experts && !mistral) || m->arch->with_bias)
		json_object_set_new(
			m->o, "attention_bias",
			json_boolean(gguf_tensor_find(m->g, "blk.0.attn_q.bias") != NULL));
	if (window)
		keys_set(m, "sliding_window", window);
	else if (!strcmp(m->arch->name, "exaone4"))
		json_object_set_new(m->o, "sliding_window", json_null());
	return token_ids(m, e);
}

int gguf_config(const struct gguf *g, const struct gguf_arch **arch_p, json_t **config_p,
		struct err *e)
{
	struct gguf_keys m = { g, NULL, NULL };
	char name[64], known[256];
	TRY(read_text(&m, "general.architecture", "", name, sizeof name, e));
	m.arch = gguf_arch_find(name);
	if (!m.arch)
		return err_set(e, *name ? ERR_UNSUPPORTED : ERR_INPUT,
			       "%s: 'general.architecture' is '%s'; these are read: %s", g->path,
			       name, gguf_arch_names(known, sizeof known));
	int64_t experts = 0;
	if (!strcmp(name, "llama"))
		TRY(keys_integer(&m, "expert_count", false, 0, &experts, e));
	if (!strcmp(name, "gemma4")) {
		TRY(keys_integer(&m, "expert_count", false, 0, &experts, e));
		m.arch = experts ? gguf_arch_mixture(m.arch) : m.arch;
	} else if (experts)
		m.arch = gguf_arch_for("mixtral");
	else if (!strcmp(name, "llama") || !strcmp(name, "olmo2")) {
		const bool llama = name[0] == 'l';
		int64_t window = 0;
		TRY(keys_integer(&m, "attention.sliding_window", false, 0, &window, e));
		if (window)
			m.arch = gguf_arch_for(llama ? "mistral" : "olmo3");
	}
	m.o = json_object();
	if (!m.o)
		return err_nomem(e, 1024, "a configuration");
	int rc = make(&m, e);
	if (rc < 0) {
		json_decref(m.o);
		return rc;
	}
	*arch_p = m.arch;
	*config_p = m.o;
	return 0;
}
