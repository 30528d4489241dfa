/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_meta.c - config.json as pairs: what all families have. Reads the old spelling (rope_theta,
 * rope_scaling) and that of transformers 5 (rope_parameters). A value that a GGUF of these
 * architectures cannot express is refused. */
#include "base/err.h"
#include "base/json.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"
#include "file/lfm2_keys.h"
#include "file/llama3_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int llama3_factors(const struct gguf_maker *m, const json_t *o, double theta, struct err *e)
{
	struct llama3_rope r = { 0 };
	TRY(json_need_num(o, m->where, "factor", 1, 1e6, &r.factor, e));
	TRY(json_need_num(o, m->where, "low_freq_factor", 1e-6, 1e6, &r.low, e));
	TRY(json_need_num(o, m->where, "high_freq_factor", 1e-6, 1e6, &r.high, e));
	TRY(json_need_num(o, m->where, "original_max_position_embeddings", 1, 1e9, &r.context, e));
	if (!(r.high > r.low))
		return err_set(e, ERR_INPUT,
			       "%s: 'high_freq_factor' must be larger than 'low_freq_factor'",
			       m->where);
	float *v = maker_factors(m, "rope_freqs.weight");
	for (int64_t i = 0; i < m->s->rot / 2; i++)
		v[i] = (float)llama3_rope_divisor(&r, theta, i, m->s->rot);
	return 0;
}

/* A list of config.json as a tensor. */
static int listed_factors(const struct gguf_maker *m, const json_t *o, const char *key,
			  const char *tensor, struct err *e)
{
	const json_t *list = json_object_get(o, key);
	if (json_array_size(list) != (size_t)(m->s->rot / 2))
		return err_set(e, ERR_INPUT, "%s: '%s' must hold %lld numbers", m->where, key,
			       (long long)(m->s->rot / 2));
	float *v = maker_factors(m, tensor);
	for (int64_t i = 0; i < m->s->rot / 2; i++)
		v[i] = (float)json_number_value(json_array_get(list, (size_t)i));
	return 0;
}

/* LongRoPE has no scaling.type: the two tensors say it (Phi3MiniModel.generate_extra_tensors). */
static int longrope(const struct gguf_maker *m, const json_t *o, int64_t positions, struct err *e)
{
	double old = (double)positions, factor = 0, attention = -1;
	if (strcmp(m->s->arch->name, "phi3") != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: rope scaling of the kind 'longrope' cannot be written into a "
			       "GGUF of this family",
			       m->where);
	TRY(json_opt_num(o, m->where, "original_max_position_embeddings", 2, 1e9, &old, e));
	TRY(json_opt_num(m->c, m->where, "original_max_position_embeddings", 2, 1e9, &old, e));
	TRY(json_opt_num(o, m->where, "factor", 1e-6, 1e6, &factor, e));
	TRY(json_opt_num(o, m->where, "attention_factor", 0, 1e6, &attention, e));
	if (factor == 0)
		factor = (double)positions / old;
	if (attention < 0)
		attention = factor > 1 ? sqrt(1 + log(factor) / log(old)) : 1;
	maker_u32(m, "rope.scaling.original_context_length", (int64_t)old);
	maker_f32(m, "rope.scaling.attn_factor", attention);
	TRY(listed_factors(m, o, "long_factor", "rope_factors_long.weight", e));
	return listed_factors(m, o, "short_factor", "rope_factors_short.weight", e);
}

/* The rope object of layers without a window, and the share of a head that rotates. */
static int read_rot(const struct gguf_maker *m, const json_t **o_p, double *theta_p, struct err *e)
{
	const json_t *p = json_object_get(m->c, "rope_parameters"),
		     *o = json_object_get(m->c, "rope_scaling");
	double share = m->s->arch->rotary > 0 ? m->s->arch->rotary : 1;
	TRY(json_opt_num(m->c, m->where, "rope_theta", 1, 1e12, theta_p, e));
	TRY(json_opt_num(m->c, m->where, "partial_rotary_factor", 1e-3, 1, &share, e));
	if (json_is_object(json_object_get(p, "full_attention")))
		p = json_object_get(p, "full_attention");
	if (json_is_object(p)) {
		o = p;
		TRY(json_opt_num(p, m->where, "rope_theta", 1, 1e12, theta_p, e));
	}
	if (json_is_object(o))
		TRY(json_opt_num(o, m->where, "partial_rotary_factor", 1e-3, 1, &share, e));
	m->s->rot = (int64_t)((double)m->s->head.dim * share);
	*o_p = o;
	return m->s->rot >= 2 && m->s->rot % 2 == 0 &&
			       (m->s->rot == m->s->head.dim || m->s->arch->partial)
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "%s: 'partial_rotary_factor' %g cannot be written into a GGUF of "
				 "this family",
				 m->where, share);
}

/* What llama.cpp takes for granted (ggml_rope_yarn_corr_dims; the factor on sin and cos of arXiv
 * 2309.00071, equation 22). */
static int check_yarn(const struct gguf_maker *m, const json_t *o, double factor, struct err *e)
{
	const double granted = factor > 1 ? 0.1 * log(factor) + 1 : 1;
	double fast = 32, slow = 1, attention = granted, mscale = 0, all = 0;
	bool cut = true;
	TRY(json_opt_num(o, m->where, "beta_fast", 0, 1e6, &fast, e));
	TRY(json_opt_num(o, m->where, "beta_slow", 0, 1e6, &slow, e));
	TRY(json_opt_num(o, m->where, "mscale", 0, 1e6, &mscale, e));
	TRY(json_opt_num(o, m->where, "mscale_all_dim", 0, 1e6, &all, e));
	if (mscale > 0 && all > 0)
		attention = (0.1 * mscale * log(factor) + 1) / (0.1 * all * log(factor) + 1);
	TRY(json_opt_num(o, m->where, "attention_factor", 0, 1e6, &attention, e));
	TRY(json_opt_bool(o, m->where, "truncate", &cut, e));
	const char *key = fast != 32                                    ? "beta_fast"
			  : slow != 1                                   ? "beta_slow"
			  : fabs(attention - granted) > 1e-4            ? "attention_factor"
			  : !cut && strcmp(m->s->arch->name, "gpt-oss") ? "truncate"
									: NULL;
	return !key ? 0
		    : err_set(e, ERR_UNSUPPORTED,
			      "%s: rope scaling: '%s' cannot be written into a GGUF with the value "
			      "that it has; write a folder instead",
			      m->where, key);
}

static int put_rope(const struct gguf_maker *m, int64_t positions, struct err *e)
{
	const json_t *o = NULL;
	const char *type = NULL;
	double theta = m->s->arch->theta > 0 ? m->s->arch->theta : 10000, factor = 0, context = 0;
	TRY(read_rot(m, &o, &theta, e));
	maker_u32(m, "rope.dimension_count", m->s->rot);
	maker_f32(m, "rope.freq_base", theta);
	if (!o || json_is_null(o))
		return 0;
	TRY(json_opt_str(o, m->where, "type", &type, e));
	TRY(json_opt_str(o, m->where, "rope_type", &type, e));
	if (!type || !strcmp(type, "default"))
		return 0;
	if (!strcmp(type, "llama3"))
		return llama3_factors(m, o, theta, e);
	if (!strcmp(type, "gguf_factors"))
		return listed_factors(m, o, "factors", "rope_freqs.weight", e);
	if (!strcmp(type, "longrope"))
		return longrope(m, o, positions, e);
	if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: rope scaling of the kind '%s' cannot be written into a GGUF",
			       m->where, type);
	TRY(json_need_num(o, m->where, "factor", 1, 1e6, &factor, e));
	TRY(json_opt_num(o, m->where, "original_max_position_embeddings", 1, 1e9, &context, e));
	if (!strcmp(type, "yarn"))
		TRY(check_yarn(m, o, factor, e));
	char name[128];
	snprintf(name, sizeof name, "%s.rope.scaling.type", m->s->arch->name);
	if (m->p)
		pairs_str(m->p, name, type);
	maker_f32(m, "rope.scaling.factor", factor);
	if (context > 0)
		maker_u32(m, "rope.scaling.original_context_length", (int64_t)context);
	return 0;
}

/* LFM2: of each layer, 0 where it has a short convolution instead. */
static int put_kv_heads(const struct gguf_maker *m, int64_t kv, struct err *e)
{
	const int64_t layers = m->s->layers;
	char key[64];
	snprintf(key, sizeof key, "%s.attention.head_count_kv", m->s->arch->name);
	if (m->p)
		pairs_array(m->p, key, GGUF_I32, (uint64_t)layers);
	for (int64_t i = 0; i < layers; i++) {
		const int conv = lfm2_is_conv(m->c, m->where, layers, i, e);
		const int32_t n = conv ? 0 : (int32_t)kv;
		TRY(conv);
		if (m->p)
			buf_add(&m->p->b, &n, sizeof n);
	}
	return 0;
}

static int make(const struct gguf_maker *m, struct err *e)
{
	struct gguf_shape *s = m->s;
	int64_t hidden = 0, ffn = 0, heads = 0, kv = 0, context = 0;
	double eps = s->arch->eps > 0 ? s->arch->eps : 1e-6;
	const bool lfm2 = s->arch->norms == GGUF_NORMS_LFM2;
	TRY(json_need_int(m->c, m->where, "hidden_size", 1, INT32_MAX, &hidden, e));
	if (s->arch->one_up)
		TRY(json_need_int(m->c, m->where, "shared_intermediate_size", 1, INT32_MAX, &ffn,
				  e));
	else if (lfm2 && !s->arch->experts)
		TRY(lfm2_width(m->c, m->where, &ffn, e));
	else
		TRY((s->arch->no_mlp ? json_opt_int : json_need_int)(
			m->c, m->where, "intermediate_size", 1, INT32_MAX, &ffn, e));
	TRY(json_need_int(m->c, m->where, "num_hidden_layers", 1, 100000, &s->layers, e));
	TRY(json_need_int(m->c, m->where, "num_attention_heads", 1, 65536, &heads, e));
	TRY(json_need_int(m->c, m->where, "max_position_embeddings", 1, INT32_MAX, &context, e));
	TRY(json_need_int(m->c, m->where, "vocab_size", 1, INT32_MAX, &s->vocab, e));
	kv = heads;
	TRY(json_opt_int(m->c, m->where, "num_key_value_heads", 1, heads, &kv, e));
	s->head.dim = s->arch->head_dim ? s->arch->head_dim : hidden / heads;
	s->heads = heads;
	s->hidden = hidden;
	s->ffn = ffn;
	s->tied = s->arch->tied;
	TRY(json_opt_int(m->c, m->where, "head_dim", 2, 2 * GGUF_FACTORS, &s->head.dim, e));
	if (s->head.dim < 2 || s->head.dim % 2 || s->head.dim / 2 > GGUF_FACTORS)
		return err_set(e, ERR_UNSUPPORTED, "%s: heads of width %lld", m->where,
			       (long long)s->head.dim);
	TRY(json_opt_num(m->c, m->where, lfm2 ? "norm_eps" : "rms_norm_eps", 0, 1, &eps, e));
	TRY(json_opt_bool(m->c, m->where, "tie_word_embeddings", &s->tied, e));
	if (m->p)
		pairs_str(m->p, "general.architecture", s->arch->name);
	maker_u32(m, "vocab_size", s->vocab);
	maker_u32(m, "context_length", context);
	maker_u32(m, "embedding_length", hidden);
	maker_u32(m, "block_count", s->layers);
	if (ffn)
		maker_u32(m, "feed_forward_length", ffn);
	maker_u32(m, "attention.head_count", heads);
	if (lfm2)
		TRY(put_kv_heads(m, kv, e));
	else if (!s->arch->two_kinds)
		maker_u32(m, "attention.head_count_kv", kv);
	maker_f32(m, "attention.layer_norm_rms_epsilon", eps);
	if (!s->arch->two_kinds) {
		maker_u32(m, "attention.key_length", s->head.dim);
		maker_u32(m, "attention.value_length", s->head.dim);
		TRY(put_rope(m, context, e));
	}
	return gguf_special(m, e);
}

int gguf_meta(const struct model_file *base, struct gguf_pairs *p, struct gguf_shape *s_p,
	      struct err *e)
{
	struct gguf_shape s = { 0 };
	struct gguf_maker m = { model_file_config(base), model_file_path(base), p, &s };
	const char *type = NULL;
	char known[256];
	TRY(json_need_str(m.c, m.where, "model_type", &type, e));
	s.arch = gguf_arch_for(type);
	if (!s.arch)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: 'model_type' is '%s', which cannot be written as GGUF; these can "
			"(Mistral as llama): %s",
			m.where, type, gguf_arch_names(known, sizeof known));
	bool mixture = false;
	TRY(json_opt_bool(m.c, m.where, "enable_moe_block", &mixture, e));
	if (mixture && gguf_arch_mixture(s.arch))
		s.arch = gguf_arch_mixture(s.arch);
	TRY(make(&m, e));
	*s_p = s;
	return 0;
}
