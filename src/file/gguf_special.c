/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_special.c - see gguf_kv.h: the keys of single families, as llama.cpp's
 * convert_hf_to_gguf.py writes them. llama.cpp knows some hyperparameters by the family alone
 * (which layers have a window or do not rotate, what scores are divided by, that there are no
 * biases): a model with others is refused. */
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "file/gemma4_keys.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"

#include <stdio.h>
#include <string.h>

static int no_place(const struct gguf_maker *m, const char *key, struct err *e)
{
	return err_set(
		e, ERR_UNSUPPORTED,
		"%s: '%s' cannot be written into a GGUF of this family with the value that it "
		"has; write a folder instead",
		m->where, key);
}

/* The key must be false or missing. */
static int refuse(const struct gguf_maker *m, const char *key, struct err *e)
{
	bool v = false;
	TRY(json_opt_bool(m->c, m->where, key, &v, e));
	return v ? no_place(m, key, e) : 0;
}

/* Layers 0 to every - 2 of each `every` have a window, the next one has none (0: none has). */
static int check_layer_types(const struct gguf_maker *m, int64_t every, struct err *e)
{
	const json_t *types = json_object_get(m->c, "layer_types"), *t;
	size_t i;
	json_array_foreach((json_t *)types, i, t)
	{
		const char *s = json_string_value(t);
		bool slides = s && !strcmp(s, "sliding_attention");
		if (slides != (every > 0 && (int64_t)(i + 1) % every != 0))
			return no_place(m, "layer_types", e);
	}
	return 0;
}

static void maker_bool(const struct gguf_maker *m, const char *name, bool v)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->s->arch->name, name);
	if (m->p)
		pairs_bool(m->p, key, v);
}

/* How many experts there are and a token has. The width of an expert is `wide`, or else the model's
 * own feed-forward width. */
static int put_experts(const struct gguf_maker *m, const char *wide, int64_t n, int64_t used,
		       struct err *e)
{
	const enum gguf_experts kind = m->s->arch->experts;
	bool whole = m->s->arch->linear || (kind != GGUF_EXPERTS_MLP && kind != GGUF_EXPERTS_QWEN2);
	TRY(json_opt_int(m->c, m->where, "num_experts", 1, GGUF_EXPERTS_MOST, &n, e));
	TRY(json_opt_int(m->c, m->where, "num_local_experts", 1, GGUF_EXPERTS_MOST, &n, e));
	TRY(json_opt_int(m->c, m->where, "n_routed_experts", 1, GGUF_EXPERTS_MOST, &n, e));
	TRY(json_opt_int(m->c, m->where, "moe_num_experts", 1, GGUF_EXPERTS_MOST, &n, e));
	TRY(json_opt_int(m->c, m->where, "num_experts_per_tok", 1, n, &used, e));
	TRY(json_opt_int(m->c, m->where, "moe_k", 1, n, &used, e));
	TRY(json_opt_int(m->c, m->where, "top_k_experts", 1, n, &used, e));
	TRY(json_opt_bool(m->c, m->where, "norm_topk_prob", &whole, e));
	if (kind == GGUF_EXPERTS_GLM)
		maker_bool(m, "expert_weights_norm", whole);
	else if (whole != m->s->arch->whole)
		return no_place(m, "norm_topk_prob", e);
	m->s->experts = n;
	maker_u32(m, "expert_count", n);
	maker_u32(m, "expert_used_count", used);
	if (wide) {
		int64_t width = m->s->arch->linear           ? 512
				: kind == GGUF_EXPERTS_MLP   ? 768
				: kind == GGUF_EXPERTS_ERNIE ? 1536
				: kind == GGUF_EXPERTS_LFM2  ? 1792
							     : 1408;
		TRY(json_opt_int(m->c, m->where, wide, 1, INT32_MAX, &width, e));
		maker_u32(m, "expert_feed_forward_length", width);
	}
	return 0;
}

/* Mistral: always when given. */
static int special_llama(const struct gguf_maker *m, struct err *e)
{
	int64_t n = 0;
	bool used = true;
	TRY(json_opt_bool(m->c, m->where, "use_sliding_window", &used, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 0, INT32_MAX, &n, e));
	if (n && used) {
		maker_u32(m, "attention.sliding_window", n);
		if (m->p)
			log_warn("%s: llama.cpp computes Mistral without its window: what it makes "
				 "of texts of more than %lld tokens is not what the model makes",
				 m->where, (long long)n);
	}
	return m->s->arch->experts ? put_experts(m, NULL, 8, 2, e) : 0;
}

/* Qwen and SmolLM3: a window only when asked for, which the file cannot say. */
static int special_qwen(const struct gguf_maker *m, struct err *e)
{
	int64_t n = 0;
	TRY(json_opt_int(m->c, m->where, "sliding_window", 0, INT32_MAX, &n, e));
	return n ? refuse(m, "use_sliding_window", e) : 0;
}

/* Every n-th layer has attention, the others linear attention. */
static int put_interval(const struct gguf_maker *m, struct err *e)
{
	const json_t *types = json_object_get(m->c, "layer_types");
	int64_t every = 4;
	TRY(json_opt_int(m->c, m->where, "full_attention_interval", 1, 1 << 20, &every, e));
	const int64_t n = (int64_t)json_array_size(types);
	int64_t first = n;
	for (int64_t i = n; i-- > 0;) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		first = type && !strcmp(type, "full_attention") ? i : first;
	}
	every = json_is_array(types) ? first + 1 : every;
	for (int64_t i = 0; i < n; i++) {
		const char *type = json_string_value(json_array_get(types, (size_t)i));
		if (!type || !strcmp(type, "full_attention") != ((i + 1) % every == 0))
			return no_place(m, "layer_types", e);
	}
	maker_u32(m, "full_attention_interval", every);
	return 0;
}

/* llama.cpp has one width for keys and values. Which frequencies turn by which position of a piece
 * of a picture is the interleaved order, in three parts as even as possible. */
static int special_qwen35(const struct gguf_maker *m, struct err *e)
{
	struct gguf_heads *h = &m->s->head;
	const int64_t half = m->s->rot / 2;
	const uint32_t sections[4] = { (uint32_t)((half + 2) / 3), (uint32_t)((half + 1) / 3),
				       (uint32_t)(half / 3), 0 };
	TRY(gguf_linear_heads(m->c, m->where, h, e));
	TRY(refuse(m, "attention_bias", e));
	if (h->dk != h->dv)
		return no_place(m, "linear_value_head_dim", e);
	maker_u32(m, "ssm.conv_kernel", h->conv);
	maker_u32(m, "ssm.state_size", h->dk);
	maker_u32(m, "ssm.group_count", h->keys);
	maker_u32(m, "ssm.time_step_rank", h->values);
	maker_u32(m, "ssm.inner_size", h->dv * h->values);
	char key[64];
	snprintf(key, sizeof key, "%s.rope.dimension_sections", m->s->arch->name);
	if (m->p) {
		pairs_array(m->p, key, GGUF_I32, ARRAY_LEN(sections));
		buf_add(&m->p->b, sections, sizeof sections);
	}
	return put_interval(m, e);
}

static int special_qwen35moe(const struct gguf_maker *m, struct err *e)
{
	int64_t shared = 512;
	TRY(json_opt_int(m->c, m->where, "shared_expert_intermediate_size", 1, INT32_MAX, &shared,
			 e));
	if (json_array_size(json_object_get(m->c, "mlp_only_layers")))
		return no_place(m, "mlp_only_layers", e);
	TRY(put_experts(m, "moe_intermediate_size", 256, 8, e));
	maker_u32(m, "expert_shared_feed_forward_length", shared);
	return special_qwen35(m, e);
}

/* Every layer has experts. */
static int special_qwen2moe(const struct gguf_maker *m, struct err *e)
{
	int64_t shared = 5632, step = 1;
	bool bias = true;
	TRY(json_opt_bool(m->c, m->where, "qkv_bias", &bias, e));
	TRY(json_opt_int(m->c, m->where, "decoder_sparse_step", 1, 1 << 20, &step, e));
	TRY(json_opt_int(m->c, m->where, "shared_expert_intermediate_size", 1, INT32_MAX, &shared,
			 e));
	if (!bias || step > 1 || json_array_size(json_object_get(m->c, "mlp_only_layers")))
		return no_place(m,
				!bias      ? "qkv_bias"
				: step > 1 ? "decoder_sparse_step"
					   : "mlp_only_layers",
				e);
	TRY(put_experts(m, "moe_intermediate_size", 60, 4, e));
	maker_u32(m, "expert_shared_feed_forward_length", shared);
	return special_qwen(m, e);
}

static int special_glm4moe(const struct gguf_maker *m, struct err *e)
{
	enum { SIGMOID = 2 };
	int64_t shared = 1, dense = 1;
	double scale = 1;
	m->s->extra = 1;
	TRY(json_opt_int(m->c, m->where, "num_nextn_predict_layers", 0, 64, &m->s->extra, e));
	TRY(json_opt_int(m->c, m->where, "num_mtp_layers", 0, 64, &m->s->extra, e));
	TRY(json_opt_int(m->c, m->where, "n_shared_experts", 1, 64, &shared, e));
	TRY(json_opt_int(m->c, m->where, "first_k_dense_replace", 0, m->s->layers, &dense, e));
	TRY(json_opt_num(m->c, m->where, "routed_scaling_factor", 1e-6, 1e6, &scale, e));
	TRY(put_experts(m, "moe_intermediate_size", 128, 8, e));
	maker_u32(m, "expert_shared_count", shared);
	maker_u32(m, "leading_dense_block_count", dense);
	maker_u32(m, "expert_gating_func", SIGMOID);
	maker_f32(m, "expert_weights_scale", scale);
	return 0;
}

static int special_qwen3moe(const struct gguf_maker *m, struct err *e)
{
	TRY(refuse(m, "attention_bias", e));
	TRY(put_experts(m, "moe_intermediate_size", 128, 8, e));
	return special_qwen(m, e);
}

static int special_olmoe(const struct gguf_maker *m, struct err *e)
{
	TRY(refuse(m, "attention_bias", e));
	return put_experts(m, NULL, 64, 8, e);
}

/* A window in every other layer, rope that yarn scales without cutting to whole places, and the
 * numbers in the SwiGLU are known by the family. */
static int special_gpt_oss(const struct gguf_maker *m, struct err *e)
{
	const json_t *o = json_object_get(m->c, "rope_parameters");
	int64_t window = 128;
	double alpha = 1.702, limit = 7;
	bool bias = true, cut = true;
	o = json_is_object(o) ? o : json_object_get(m->c, "rope_scaling");
	TRY(json_opt_bool(m->c, m->where, "attention_bias", &bias, e));
	TRY(json_opt_num(m->c, m->where, "swiglu_alpha", 0, 1e9, &alpha, e));
	TRY(json_opt_num(m->c, m->where, "swiglu_limit", 0, 1e9, &limit, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 1, INT32_MAX, &window, e));
	if (json_is_object(o))
		TRY(json_opt_bool(o, m->where, "truncate", &cut, e));
	if (cut)
		return no_place(m, "truncate", e);
	if (!bias || alpha != 1.702 || limit != 7)
		return no_place(m, bias ? "swiglu_limit" : "attention_bias", e);
	maker_u32(m, "attention.sliding_window", window);
	maker_u32(m, "expert_feed_forward_length", m->s->ffn);
	TRY(put_experts(m, NULL, 128, 4, e));
	return check_layer_types(m, 2, e);
}

static int special_smollm3(const struct gguf_maker *m, struct err *e)
{
	const json_t *list = json_object_get(m->c, "no_rope_layers"), *v;
	int64_t interval = 4;
	size_t i;
	TRY(refuse(m, "attention_bias", e));
	TRY(refuse(m, "mlp_bias", e));
	TRY(json_opt_int(m->c, m->where, "no_rope_layer_interval", 1, 1 << 20, &interval, e));
	json_array_foreach((json_t *)list, i,
			   v) if ((json_integer_value(v) == 0) !=
				  ((i + 1) % 4 == 0)) return no_place(m, "no_rope_layers", e);
	if (!json_is_array(list) && interval != 4)
		return no_place(m, "no_rope_layer_interval", e);
	return special_qwen(m, e);
}

/* Granite 4 is written as Granite 3, which always rotates. */
static int check_granite4(const struct gguf_maker *m, struct err *e)
{
	const char *positions = "";
	TRY(json_opt_str(m->c, m->where, "position_embedding_type", &positions, e));
	return strcmp(positions, "rope") != 0 ? no_place(m, "position_embedding_type", e) : 0;
}

static int special_granite(const struct gguf_maker *m, struct err *e)
{
	static const char *const row[][2] = { { "embedding_multiplier", "embedding_scale" },
					      { "residual_multiplier", "residual_scale" },
					      { "attention_multiplier", "attention.scale" },
					      { "logits_scaling", "logit_scale" } };
	for (size_t i = 0; i < 4; i++) {
		double v = 1;
		TRY(json_opt_num(m->c, m->where, row[i][0], 1e-9, 1e9, &v, e));
		maker_f32(m, row[i][1], v);
	}
	return m->s->arch->one_up ? check_granite4(m, e) : 0;
}

/* Layers with a window rotate by frequencies of the same base, which are not scaled. */
static int special_olmo3(const struct gguf_maker *m, struct err *e)
{
	const json_t *p = json_object_get(m->c, "rope_parameters"),
		     *s = json_object_get(p, "sliding_attention");
	int64_t window = 4096;
	double theta = 500000, base = 500000;
	const char *type = "default";
	TRY(json_opt_num(m->c, m->where, "rope_theta", 1, 1e12, &base, e));
	theta = base;
	if (json_is_object(json_object_get(p, "full_attention")))
		TRY(json_opt_num(json_object_get(p, "full_attention"), m->where, "rope_theta", 1,
				 1e12, &base, e));
	if (json_is_object(s)) {
		TRY(json_opt_num(s, m->where, "rope_theta", 1, 1e12, &theta, e));
		TRY(json_opt_str(s, m->where, "rope_type", &type, e));
	}
	if (theta != base || strcmp(type, "default") != 0)
		return no_place(m, "rope_parameters.sliding_attention", e);
	TRY(json_opt_int(m->c, m->where, "sliding_window", 1, INT32_MAX, &window, e));
	maker_u32(m, "attention.sliding_window", window);
	TRY(refuse(m, "attention_bias", e));
	return check_layer_types(m, 4, e);
}

static int special_olmo2(const struct gguf_maker *m, struct err *e)
{
	return !strcmp(m->s->arch->model_type, "olmo3") ? special_olmo3(m, e)
							: refuse(m, "attention_bias", e);
}

/* llama.cpp knows by the number of layers which of the two models has windows. */
static int special_exaone4(const struct gguf_maker *m, struct err *e)
{
	enum { LARGE = 64 };
	const bool large = m->s->layers == LARGE;
	int64_t window = 4096, every = 4;
	TRY(json_opt_int(m->c, m->where, "sliding_window", 1, INT32_MAX, &window, e));
	if (json_is_null(json_object_get(m->c, "sliding_window")))
		window = 0;
	if (large != (window != 0))
		return no_place(m, "sliding_window", e);
	if (!window)
		return 0;
	const json_t *p = json_object_get(m->c, "sliding_window_pattern");
	if (json_is_integer(p))
		every = json_integer_value(p);
	else if (json_is_string(p) && strcmp(json_string_value(p), "LLLG") != 0)
		every = 0;
	if (every != 4 && !json_is_array(json_object_get(m->c, "layer_types")))
		return no_place(m, "sliding_window_pattern", e);
	maker_u32(m, "attention.sliding_window", window);
	return check_layer_types(m, 4, e);
}

static int special_ernie(const struct gguf_maker *m, struct err *e)
{
	return refuse(m, "use_bias", e);
}

/* From the first layer with experts on, every n-th has some. */
static int special_ernie_moe(const struct gguf_maker *m, struct err *e)
{
	int64_t shared = 2, first = 1, last = -1, step = 1, width = 1536;
	TRY(refuse(m, "use_bias", e));
	TRY(json_opt_int(m->c, m->where, "moe_num_shared_experts", 0, 64, &shared, e));
	TRY(json_opt_int(m->c, m->where, "moe_layer_start_index", 0, INT32_MAX, &first, e));
	TRY(json_opt_int(m->c, m->where, "moe_layer_end_index", -1, INT32_MAX, &last, e));
	TRY(json_opt_int(m->c, m->where, "moe_layer_interval", 1, INT32_MAX, &step, e));
	TRY(json_opt_int(m->c, m->where, "moe_intermediate_size", 1, 1 << 22, &width, e));
	if (last >= 0 && last < m->s->layers - 1)
		return no_place(m, "moe_layer_end_index", e);
	TRY(put_experts(m, "moe_intermediate_size", 64, 6, e));
	maker_u32(m, "expert_shared_count", shared);
	maker_u32(m, "expert_shared_feed_forward_length", shared * width);
	maker_u32(m, "leading_dense_block_count", first);
	maker_u32(m, "interleave_moe_layer_step", step);
	return 0;
}

/* llama.cpp has no bias of the MLP. */
static int special_seed(const struct gguf_maker *m, struct err *e)
{
	TRY(refuse(m, "attention_out_bias", e));
	return refuse(m, "mlp_bias", e);
}

static int special_gemma(const struct gguf_maker *m, struct err *e)
{
	TRY(refuse(m, "use_bidirectional_attention", e));
	return refuse(m, "attention_bias", e);
}

/* A window in all layers but each `every`th, and scores divided by the root of the head's width; in
 * the largest model, of `largest` layers, by that of another one. */
static int windowed_gemma(const struct gguf_maker *m, int64_t window, int64_t every,
			  int64_t largest, struct err *e)
{
	double divisor = 256;
	TRY(special_gemma(m, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 1, INT32_MAX, &window, e));
	TRY(json_opt_num(m->c, m->where, "query_pre_attn_scalar", 1e-3, 1e9, &divisor, e));
	const int64_t want = m->s->layers == largest ? m->s->hidden / m->s->heads : m->s->head.dim;
	if (divisor != (double)want)
		return no_place(m, "query_pre_attn_scalar", e);
	maker_u32(m, "attention.sliding_window", window);
	return check_layer_types(m, every, e);
}

static int special_gemma2(const struct gguf_maker *m, struct err *e)
{
	double attention = 50, final = 30;
	TRY(windowed_gemma(m, 4096, 2, 46, e));
	if (json_is_null(json_object_get(m->c, "attn_logit_softcapping")))
		return no_place(m, "attn_logit_softcapping", e);
	if (json_is_null(json_object_get(m->c, "final_logit_softcapping")))
		return no_place(m, "final_logit_softcapping", e);
	TRY(json_opt_num(m->c, m->where, "attn_logit_softcapping", 1e-3, 1e6, &attention, e));
	TRY(json_opt_num(m->c, m->where, "final_logit_softcapping", 1e-3, 1e6, &final, e));
	maker_f32(m, "attn_logit_softcapping", attention);
	maker_f32(m, "final_logit_softcapping", final);
	return 0;
}

/* Layers with a window rotate by frequencies of their own, which are not scaled. */
static int special_gemma3(const struct gguf_maker *m, struct err *e)
{
	const json_t *s =
		json_object_get(json_object_get(m->c, "rope_parameters"), "sliding_attention");
	const char *type = "default";
	int64_t every = 6;
	double theta = 10000, cap = 0;
	TRY(json_opt_int(m->c, m->where, "_sliding_window_pattern", 1, 1 << 20, &every, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window_pattern", 1, 1 << 20, &every, e));
	if (every != 6 && !json_is_array(json_object_get(m->c, "layer_types")))
		return no_place(m, "sliding_window_pattern", e);
	TRY(windowed_gemma(m, 4096, 6, 62, e));
	TRY(json_opt_num(m->c, m->where, "attn_logit_softcapping", 1e-3, 1e6, &cap, e));
	if (cap > 0)
		return no_place(m, "attn_logit_softcapping", e);
	TRY(json_opt_num(m->c, m->where, "final_logit_softcapping", 1e-3, 1e6, &cap, e));
	if (cap > 0)
		maker_f32(m, "final_logit_softcapping", cap);
	TRY(json_opt_num(m->c, m->where, "rope_local_base_freq", 1, 1e12, &theta, e));
	if (s) {
		TRY(json_opt_num(s, m->where, "rope_theta", 1, 1e12, &theta, e));
		TRY(json_opt_str(s, m->where, "rope_type", &type, e));
	}
	if (strcmp(type, "default") != 0)
		return no_place(m, "rope_parameters.sliding_attention", e);
	if (theta != 10000)
		maker_f32(m, "rope.freq_base_swa", theta);
	return 0;
}

/* Which layers have a window; how many heads of keys each has, where they differ. */
static int put_kinds(const struct gguf_maker *m, const struct gemma4_heads *h, struct err *e)
{
	const int64_t layers = m->s->layers;
	const bool differ = h->kv != h->full_kv;
	const char *arch = m->s->arch->name;
	struct buf windowed = BUF_INIT, groups = BUF_INIT;
	char key[64];
	int rc = 0;
	for (int64_t i = 0; i < layers && rc >= 0; i++) {
		rc = gemma4_is_windowed(m->c, m->where, layers, i, e);
		const int32_t kv = (int32_t)(rc > 0 ? h->kv : h->full_kv);
		buf_addc(&windowed, rc > 0);
		buf_add(&groups, &kv, sizeof kv);
	}
	if (rc >= 0)
		rc = buf_ok(&windowed, e);
	if (rc >= 0)
		rc = buf_ok(&groups, e);
	if (rc >= 0 && m->p) {
		snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
		pairs_array(m->p, key, GGUF_BOOL, (uint64_t)layers);
		buf_add(&m->p->b, windowed.p, windowed.n);
	}
	if (rc >= 0 && m->p && differ) {
		snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
		pairs_array(m->p, key, GGUF_I32, (uint64_t)layers);
		buf_add(&m->p->b, groups.p, groups.n);
	}
	if (rc >= 0 && !differ)
		maker_u32(m, "attention.head_count_kv", h->kv);
	buf_release(&windowed);
	buf_release(&groups);
	return rc;
}

/* Frequencies of layers without a window: the first share of them, divided by a factor; the others
 * are divided by so much that nothing is left. */
static int put_gemma4_rope(const struct gguf_maker *m, struct err *e)
{
	const json_t *all = json_object_get(m->c, "rope_parameters"),
		     *full = json_object_get(all, "full_attention"),
		     *local = json_object_get(all, "sliding_attention");
	double theta = 1e6, base = 1e4, share = full ? 1 : 0.25, factor = 1;
	if (full) {
		TRY(json_opt_num(full, m->where, "rope_theta", 1, 1e12, &theta, e));
		TRY(json_opt_num(full, m->where, "partial_rotary_factor", 0, 1, &share, e));
		TRY(json_opt_num(full, m->where, "factor", 1e-3, 1e6, &factor, e));
	}
	if (local)
		TRY(json_opt_num(local, m->where, "rope_theta", 1, 1e12, &base, e));
	maker_f32(m, "rope.freq_base", theta);
	maker_f32(m, "rope.freq_base_swa", base);
	float *v = maker_factors(m, "rope_freqs.weight");
	const int64_t angles = (int64_t)(share * (double)m->s->rot) / 2;
	for (int64_t i = 0; i < m->s->rot / 2; i++)
		v[i] = i < angles ? (float)factor : 1e30f;
	return 0;
}

/* Layers with and without a window have heads and frequencies of their own. */
static int special_gemma4(const struct gguf_maker *m, struct err *e)
{
	struct gemma4_heads h = { .dim = m->s->head.dim, .kv = m->s->heads };
	int64_t window = 512;
	double cap = 0;
	TRY(refuse(m, "attention_bias", e));
	TRY(json_opt_int(m->c, m->where, "num_key_value_heads", 1, m->s->heads, &h.kv, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 1, INT32_MAX, &window, e));
	TRY(json_opt_num(m->c, m->where, "final_logit_softcapping", 1e-3, 1e6, &cap, e));
	TRY(gemma4_read_heads(m->c, m->where, m->s->layers, &h, e));
	m->s->rot = h.full_dim;
	maker_u32(m, "attention.key_length", h.full_dim);
	maker_u32(m, "attention.value_length", h.full_dim);
	maker_u32(m, "attention.key_length_swa", h.dim);
	maker_u32(m, "attention.value_length_swa", h.dim);
	maker_u32(m, "rope.dimension_count", h.full_dim);
	maker_u32(m, "rope.dimension_count_swa", h.dim);
	maker_u32(m, "attention.sliding_window", window);
	maker_u32(m, "attention.shared_kv_layers", 0);
	maker_u32(m, "embedding_length_per_layer_input", 0);
	maker_f32(m, "final_logit_softcapping", cap); /* without it llama.cpp takes 30 */
	TRY(put_kinds(m, &h, e));
	TRY(put_gemma4_rope(m, e));
	return m->s->arch->experts ? put_experts(m, "moe_intermediate_size", 0, 0, e) : 0;
}

/* A window of 0 says that there is none; without the key llama.cpp would take one. */
static int special_phi3(const struct gguf_maker *m, struct err *e)
{
	int64_t n = 0;
	TRY(refuse(m, "attention_bias", e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 0, INT32_MAX, &n, e));
	maker_u32(m, "attention.sliding_window", n);
	return 0;
}

/* llama.cpp takes the embedding as the head of these families, or never. */
static int check_head(const struct gguf_maker *m, struct err *e)
{
	static const struct {
		const char *arch;
		bool tied;
	} rows[] = { { "gemma", true },  { "gemma2", true },    { "olmo2", false },
		     { "olmoe", false }, { "qwen2moe", false }, { "gpt-oss", false } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(rows[i].arch, m->s->arch->name) && rows[i].tied != m->s->tied)
			return no_place(m, "tie_word_embeddings", e);
	return 0;
}

static int special_lfm2(const struct gguf_maker *m, struct err *e)
{
	int64_t conv = 3;
	TRY(json_opt_int(m->c, m->where, "conv_L_cache", 2, 16, &conv, e));
	TRY(json_opt_bool(m->c, m->where, "tie_embedding", &m->s->tied, e));
	m->s->head.conv = conv;
	maker_u32(m, "shortconv.l_cache", conv);
	return refuse(m, "conv_bias", e);
}

/* llama.cpp always divides weights by their sum, and multiplies them by nothing. */
static int special_lfm2moe(const struct gguf_maker *m, struct err *e)
{
	enum { SIGMOID = 2 };
	int64_t dense = 2;
	double scale = 1;
	TRY(special_lfm2(m, e));
	TRY(json_opt_int(m->c, m->where, "num_dense_layers", 0, m->s->layers, &dense, e));
	TRY(json_opt_num(m->c, m->where, "routed_scaling_factor", 1e-6, 1e6, &scale, e));
	if (scale != 1)
		return no_place(m, "routed_scaling_factor", e);
	TRY(put_experts(m, "moe_intermediate_size", 32, 4, e));
	maker_u32(m, "leading_dense_block_count", dense);
	maker_u32(m, "expert_gating_func", SIGMOID);
	maker_f32(m, "expert_weights_scale", scale);
	return 0;
}

int gguf_special(const struct gguf_maker *m, struct err *e)
{
	static const struct {
		const char *arch;
		int (*put)(const struct gguf_maker *m, struct err *e);
	} rows[] = {
		{ "llama", special_llama },         { "qwen2", special_qwen },
		{ "qwen3", special_qwen },          { "granite", special_granite },
		{ "smollm3", special_smollm3 },     { "olmo2", special_olmo2 },
		{ "gemma", special_gemma },         { "gemma2", special_gemma2 },
		{ "gemma3", special_gemma3 },       { "gemma4", special_gemma4 },
		{ "phi3", special_phi3 },           { "qwen3moe", special_qwen3moe },
		{ "olmoe", special_olmoe },         { "gpt-oss", special_gpt_oss },
		{ "qwen2moe", special_qwen2moe },   { "glm4moe", special_glm4moe },
		{ "exaone4", special_exaone4 },     { "ernie4_5", special_ernie },
		{ "qwen35", special_qwen35 },       { "seed_oss", special_seed },
		{ "qwen35moe", special_qwen35moe }, { "ernie4_5-moe", special_ernie_moe },
		{ "lfm2", special_lfm2 },           { "lfm2moe", special_lfm2moe },
	};
	TRY(check_head(m, e));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(rows[i].arch, m->s->arch->name))
			return rows[i].put(m, e);
	return 0;
}
