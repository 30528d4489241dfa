/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_meta.c - building pairs, and config.json as pairs. Reads the old spelling (rope_theta,
 * rope_scaling) and that of transformers 5 (rope_parameters). A value that a GGUF of these
 * architectures cannot express is refused. */
#include "base/err.h"
#include "base/json.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void pairs_text(struct gguf_pairs *p, const char *s, size_t n)
{
	uint64_t len = n;
	buf_add(&p->b, &len, 8);
	buf_add(&p->b, s, n);
}

static void begin(struct gguf_pairs *p, const char *key, uint32_t kind)
{
	pairs_text(p, key, strlen(key));
	buf_add(&p->b, &kind, 4);
	p->n++;
}

void pairs_str(struct gguf_pairs *p, const char *key, const char *s)
{
	begin(p, key, GGUF_STR);
	pairs_text(p, s, strlen(s));
}

void pairs_u32(struct gguf_pairs *p, const char *key, uint32_t v)
{
	begin(p, key, GGUF_U32);
	buf_add(&p->b, &v, 4);
}

void pairs_f32(struct gguf_pairs *p, const char *key, float v)
{
	begin(p, key, GGUF_F32);
	buf_add(&p->b, &v, 4);
}

void pairs_bool(struct gguf_pairs *p, const char *key, bool v)
{
	begin(p, key, GGUF_BOOL);
	buf_addc(&p->b, v);
}

void pairs_array(struct gguf_pairs *p, const char *key, uint32_t kind, uint64_t count)
{
	begin(p, key, GGUF_ARRAY);
	buf_add(&p->b, &kind, 4);
	buf_add(&p->b, &count, 8);
}

struct maker {
	const json_t *c;
	const char *where;
	struct gguf_pairs *p; /* or NULL */
	struct gguf_shape *s;
};

static void put_u32(const struct maker *m, const char *name, int64_t v)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->s->arch->name, name);
	if (m->p)
		pairs_u32(m->p, key, (uint32_t)v);
}

static void put_f32(const struct maker *m, const char *name, double v)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", m->s->arch->name, name);
	if (m->p)
		pairs_f32(m->p, key, (float)v);
}

/* The factors of Llama 3.1 (transformers modeling_rope_utils.py, _compute_llama3_parameters): long
 * wavelengths are stretched by `factor`, short ones are not, those between are blended. */
static int llama3_factors(const struct maker *m, const json_t *o, double theta, struct err *e)
{
	double factor = 0, low = 0, high = 0, context = 0;
	TRY(json_need_num(o, m->where, "factor", 1, 1e6, &factor, e));
	TRY(json_need_num(o, m->where, "low_freq_factor", 1e-6, 1e6, &low, e));
	TRY(json_need_num(o, m->where, "high_freq_factor", 1e-6, 1e6, &high, e));
	TRY(json_need_num(o, m->where, "original_max_position_embeddings", 1, 1e9, &context, e));
	if (!(high > low))
		return err_set(e, ERR_INPUT,
			       "%s: 'high_freq_factor' must be larger than 'low_freq_factor'",
			       m->where);
	for (int64_t i = 0; i < m->s->head_dim / 2; i++) {
		double wave = 2 * M_PI * pow(theta, 2.0 * (double)i / (double)m->s->head_dim);
		double smooth = (context / wave - low) / (high - low);
		m->s->factors[i] =
			(float)(wave < context / high  ? 1
				: wave > context / low ? factor
						       : 1 / ((1 - smooth) / factor + smooth));
	}
	m->s->has_factors = true;
	return 0;
}

static int gguf_factors(const struct maker *m, const json_t *o, struct err *e)
{
	const json_t *list = json_object_get(o, "factors");
	if (json_array_size(list) != (size_t)(m->s->head_dim / 2))
		return err_set(e, ERR_INPUT, "%s: 'factors' must hold %lld numbers", m->where,
			       (long long)(m->s->head_dim / 2));
	for (int64_t i = 0; i < m->s->head_dim / 2; i++)
		m->s->factors[i] = (float)json_number_value(json_array_get(list, (size_t)i));
	m->s->has_factors = true;
	return 0;
}

static int put_rope(const struct maker *m, struct err *e)
{
	const json_t *p = json_object_get(m->c, "rope_parameters"),
		     *o = json_object_get(m->c, "rope_scaling");
	const char *type = NULL, *key = json_is_object(p) ? "rope_parameters" : "rope_scaling";
	double theta = 10000, factor = 0, context = 0;
	TRY(json_opt_num(m->c, m->where, "rope_theta", 1, 1e12, &theta, e));
	if (json_is_object(p)) {
		o = p;
		TRY(json_opt_num(p, m->where, "rope_theta", 1, 1e12, &theta, e));
	}
	put_f32(m, "rope.freq_base", theta);
	if (!o || json_is_null(o))
		return 0;
	TRY(json_opt_str(o, m->where, "type", &type, e));
	TRY(json_opt_str(o, m->where, "rope_type", &type, e));
	if (!type || !strcmp(type, "default"))
		return 0;
	if (!strcmp(type, "llama3"))
		return llama3_factors(m, o, theta, e);
	if (!strcmp(type, "gguf_factors"))
		return gguf_factors(m, o, e);
	if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: '%s' of the kind '%s' cannot be written into a GGUF", m->where,
			       key, type);
	TRY(json_need_num(o, m->where, "factor", 1, 1e6, &factor, e));
	TRY(json_opt_num(o, m->where, "original_max_position_embeddings", 1, 1e9, &context, e));
	char name[128];
	snprintf(name, sizeof name, "%s.rope.scaling.type", m->s->arch->name);
	if (m->p)
		pairs_str(m->p, name, type);
	put_f32(m, "rope.scaling.factor", factor);
	if (context > 0)
		put_u32(m, "rope.scaling.original_context_length", (int64_t)context);
	return 0;
}

static int put_window(const struct maker *m, struct err *e)
{
	int64_t n = 0;
	/* Mistral: always when given; Qwen: only when asked for */
	bool used = m->s->arch->permuted;
	TRY(json_opt_bool(m->c, m->where, "use_sliding_window", &used, e));
	TRY(json_opt_int(m->c, m->where, "sliding_window", 0, INT32_MAX, &n, e));
	if (!n || !used)
		return 0;
	if (!m->s->arch->permuted)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: 'use_sliding_window' cannot be written into a GGUF of this family",
			m->where);
	put_u32(m, "attention.sliding_window", n);
	return 0;
}

static int make(const struct maker *m, struct err *e)
{
	struct gguf_shape *s = m->s;
	int64_t hidden = 0, ffn = 0, heads = 0, kv = 0, context = 0;
	double eps = 1e-6;
	TRY(json_need_int(m->c, m->where, "hidden_size", 1, INT32_MAX, &hidden, e));
	TRY(json_need_int(m->c, m->where, "intermediate_size", 1, INT32_MAX, &ffn, e));
	TRY(json_need_int(m->c, m->where, "num_hidden_layers", 1, 100000, &s->layers, e));
	TRY(json_need_int(m->c, m->where, "num_attention_heads", 1, 65536, &heads, e));
	TRY(json_need_int(m->c, m->where, "max_position_embeddings", 1, INT32_MAX, &context, e));
	TRY(json_need_int(m->c, m->where, "vocab_size", 1, INT32_MAX, &s->vocab, e));
	kv = heads;
	TRY(json_opt_int(m->c, m->where, "num_key_value_heads", 1, heads, &kv, e));
	s->head_dim = hidden / heads;
	TRY(json_opt_int(m->c, m->where, "head_dim", 2,
			 2 * (int64_t)(sizeof s->factors / sizeof *s->factors), &s->head_dim, e));
	if (s->head_dim < 2 || s->head_dim % 2 ||
	    s->head_dim / 2 > (int64_t)(sizeof s->factors / sizeof *s->factors))
		return err_set(e, ERR_UNSUPPORTED, "%s: heads of width %lld", m->where,
			       (long long)s->head_dim);
	TRY(json_opt_num(m->c, m->where, "rms_norm_eps", 0, 1, &eps, e));
	TRY(json_opt_bool(m->c, m->where, "tie_word_embeddings", &s->tied, e));
	if (m->p)
		pairs_str(m->p, "general.architecture", s->arch->name);
	put_u32(m, "vocab_size", s->vocab);
	put_u32(m, "context_length", context);
	put_u32(m, "embedding_length", hidden);
	put_u32(m, "block_count", s->layers);
	put_u32(m, "feed_forward_length", ffn);
	put_u32(m, "attention.head_count", heads);
	put_u32(m, "attention.head_count_kv", kv);
	put_f32(m, "attention.layer_norm_rms_epsilon", eps);
	put_u32(m, "rope.dimension_count", s->head_dim);
	put_u32(m, "attention.key_length", s->head_dim);
	put_u32(m, "attention.value_length", s->head_dim);
	TRY(put_window(m, e));
	return put_rope(m, e);
}

int gguf_meta(const struct model_file *base, struct gguf_pairs *p, struct gguf_shape *s_p,
	      struct err *e)
{
	struct gguf_shape s = { 0 };
	struct maker m = { model_file_config(base), model_file_path(base), p, &s };
	const char *type = NULL;
	TRY(json_need_str(m.c, m.where, "model_type", &type, e));
	s.arch = gguf_arch_for(type);
	if (!s.arch)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'model_type' is '%s'; llama, mistral, qwen2 and qwen3 can be "
			       "written as GGUF",
			       m.where, type);
	TRY(make(&m, e));
	*s_p = s;
	return 0;
}
