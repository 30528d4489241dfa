/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_config_gemma4.c - see gguf_keys.h: Gemma 4 has two kinds of layers, with heads and
 * frequencies of their own (llama.cpp: conversion/gemma.py). */
#include "base/err.h"
#include "base/mem.h"
#include "file/gguf_keys.h"

#include <stdio.h>
#include <string.h>

/* `windowed`: a list of true and false. */
struct layers {
	json_t *windowed;
	size_t n, full; /* how many, the first without a window */
};

static bool is_windowed(const struct layers *l, size_t i)
{
	return json_is_true(json_array_get(l->windowed, i));
}

static int check_sizes(const struct gguf_keys *m, struct err *e)
{
	static const char *const none[] = { "embedding_length_per_layer_input",
					    "attention.shared_kv_layers" };
	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		int64_t v = 0;
		TRY(keys_integer(m, none[i], false, 0, &v, e));
		if (v)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s.%s' is %lld: Gemma 4 with embeddings for each "
				       "layer or layers that share keys and values, such as E2B "
				       "and E4B, is not supported; 31B and 26B-A4B are",
				       m->g->path, m->arch->name, none[i], (long long)v);
	}
	return 0;
}

static int read_layers(const struct gguf_keys *m, struct layers *l, struct err *e)
{
	const struct gguf_kv *kv = keys_find(m, "attention.sliding_window_pattern");
	const json_int_t n = json_integer_value(json_object_get(m->o, "num_hidden_layers"));
	json_t *types = json_array();
	json_object_set_new(m->o, "layer_types", types);
	if (!kv || !kv->array || kv->count != (uint64_t)n)
		return err_set(e, ERR_INPUT,
			       "%s: '%s.attention.sliding_window_pattern' must be a list of %lld "
			       "layers",
			       m->g->path, m->arch->name, (long long)n);
	TRY(gguf_kv_json(m->g, kv, &l->windowed, e));
	l->n = l->full = (size_t)n;
	for (size_t i = l->n; i-- > 0;)
		l->full = is_windowed(l, i) ? l->full : i;
	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(types, json_string(is_windowed(l, i) ? "sliding_attention"
									   : "full_attention"));
	return is_windowed(l, l->n - 1) ? err_set(e, ERR_UNSUPPORTED,
						  "%s: '%s': the last layer has a window, which is "
						  "not supported",
						  m->g->path, kv->key)
					: 0;
}

/* How many heads of keys layers with and without a window have: one number, or one of each layer.
 */
static int read_groups(const struct gguf_keys *m, const struct layers *l, int64_t n[2],
		       struct err *e)
{
	static const char name[] = "attention.head_count_kv";
	const struct gguf_kv *kv = keys_find(m, name);
	json_t *list = NULL;
	bool ok = true;
	n[0] = n[1] = 0;
	if (!kv || !kv->array) {
		TRY(keys_integer(m, name, true, 1, &n[0], e));
		n[1] = n[0];
		return 0;
	}
	TRY(gguf_kv_json(m->g, kv, &list, e));
	ok = json_array_size(list) == l->n;
	for (size_t i = 0; ok && i < l->n; i++) {
		int64_t *seen = &n[!is_windowed(l, i)];
		const json_int_t v = json_integer_value(json_array_get(list, i));
		ok = v > 0 && v <= GGUF_INT_MOST && (!*seen || *seen == v);
		*seen = v;
	}
	json_decref(list);
	n[0] = n[0] ? n[0] : n[1];
	return ok ? 0
		  : err_set(e, ERR_UNSUPPORTED,
			    "%s: '%s' must have a number for each layer, the same for all with and "
			    "for all without a window",
			    m->g->path, kv->key);
}

/* Keys, values and what turns have one width; `behind`: how the names end. */
static int read_width(const struct gguf_keys *m, const char *behind, int64_t *d_p, struct err *e)
{
	static const char *const names[] = { "attention.key_length", "attention.value_length",
					     "rope.dimension_count" };
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char name[64];
		int64_t v = *d_p;
		snprintf(name, sizeof name, "%s%s", names[i], behind);
		TRY(keys_integer(m, name, !i, 2, &v, e));
		if (i && v != *d_p)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s.%s' is %lld, and keys are %lld numbers wide: both "
				       "must be the same",
				       m->g->path, m->arch->name, name, (long long)v,
				       (long long)*d_p);
		*d_p = v;
	}
	return 0;
}

/* Layers without a window: the first frequencies of a head are divided by a factor; the others by
 * so much that nothing is left. */
static int read_full_rope(const struct gguf_keys *m, int64_t dim, double theta, json_t **rope_p,
			  struct err *e)
{
	enum { NOTHING = 1000000000 };
	const struct gguf_tensor *t = gguf_tensor_find(m->g, "rope_freqs.weight");
	json_t *list;
	int64_t n = 0;
	bool ok = true;
	if (!t)
		return err_set(e, ERR_INPUT, "%s: the tensor 'rope_freqs.weight' is missing",
			       m->g->path);
	TRY(keys_factors(m, t, dim, &list, e));
	double factor = json_real_value(json_array_get(list, 0));
	factor = factor < NOTHING ? factor : 1; /* none turns */
	while (n < dim / 2 && json_real_value(json_array_get(list, (size_t)n)) == factor)
		n++;
	for (int64_t i = n; i < dim / 2; i++)
		ok &= json_real_value(json_array_get(list, (size_t)i)) >= NOTHING;
	json_decref(list);
	if (!ok)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: '%s' must hold one number for the frequencies that turn, and "
			       "behind them at least %d for the others",
			       m->g->path, t->name, NOTHING);
	*rope_p = json_pack("{s:s,s:f,s:f}", "rope_type", "proportional", "partial_rotary_factor",
			    (double)(2 * n) / (double)dim, "rope_theta", theta);
	if (factor != 1)
		json_object_set_new(*rope_p, "factor", json_real(factor));
	return 0;
}

static int read_rope(const struct gguf_keys *m, int64_t full_dim, double theta, struct err *e)
{
	double local = 10000;
	json_t *full = NULL;
	TRY(keys_number(m, "rope.freq_base_swa", false, 1, 1e12, &local, e));
	TRY(read_full_rope(m, full_dim, theta, &full, e));
	json_object_set_new(m->o, "rope_parameters",
			    json_pack("{s:o,s:{s:s,s:f}}", "full_attention", full,
				      "sliding_attention", "rope_type", "default", "rope_theta",
				      local));
	return 0;
}

static int read_all(const struct gguf_keys *m, struct layers *l, double theta, struct err *e)
{
	int64_t heads = 0, dim = 0, full_dim = 0, groups[2];
	double cap = 30; /* llama.cpp's, where the file does not say */
	char name[64];
	TRY(check_sizes(m, e));
	TRY(read_layers(m, l, e));
	TRY(keys_integer(m, "attention.head_count", true, 1, &heads, e));
	TRY(read_width(m, "", &full_dim, e));
	TRY(read_width(m, "_swa", &dim, e));
	TRY(read_groups(m, l, groups, e));
	TRY(read_rope(m, full_dim, theta, e));
	TRY(keys_number(m, "final_logit_softcapping", false, 0, 1e6, &cap, e));
	if (cap > 0)
		json_object_set_new(m->o, "final_logit_softcapping", json_real(cap));
	snprintf(name, sizeof name, "blk.%zu.attn_v.weight", l->full);
	const bool k_is_v = !gguf_tensor_find(m->g, name);
	if (!k_is_v && groups[0] != groups[1])
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: layers without a window have other numbers of keys, and values "
			       "of their own, which is not supported",
			       m->g->path);
	keys_set(m, "num_attention_heads", heads);
	keys_set(m, "num_key_value_heads", groups[0]);
	keys_set(m, "head_dim", dim);
	keys_set(m, "global_head_dim", full_dim);
	keys_set(m, "hidden_size_per_layer_input", 0);
	json_object_set_new(m->o, "attention_k_eq_v", json_boolean(k_is_v));
	if (k_is_v)
		keys_set(m, "num_global_key_value_heads", groups[1]);
	return 0;
}

int gguf_config_gemma4(const struct gguf_keys *m, double theta, struct err *e)
{
	struct layers l = { 0 };
	const int rc = read_all(m, &l, theta, e);
	json_decref(l.windowed);
	return rc;
}
