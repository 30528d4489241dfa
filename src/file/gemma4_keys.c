/* SPDX-License-Identifier: Apache-2.0 */
/* gemma4_keys.c - see gemma4_keys.h. */
#include "file/gemma4_keys.h"

#include "base/err.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum { DIM_MOST = 2048, KV_MOST = 4096 };

int gemma4_is_windowed(const json_t *j, const char *where, int64_t layers, int64_t i, struct err *e)
{
	enum { EVERY = 6 };
	const json_t *types = json_object_get(j, "layer_types");
	bool slides = (i + 1) % EVERY != 0;
	if (json_is_array(types)) {
		const char *t = json_string_value(json_array_get(types, (size_t)i));
		if ((int64_t)json_array_size(types) != layers)
			return err_set(e, ERR_INPUT,
				       "%s: 'layer_types' has %zu entries for %lld layers", where,
				       json_array_size(types), (long long)layers);
		slides = t && !strcmp(t, "sliding_attention");
		if (!slides && (!t || strcmp(t, "full_attention") != 0))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'layer_types': '%s' is not supported", where,
				       t ? t : "?");
	}
	return slides && i < layers - 1;
}

int gemma4_read_heads(const json_t *j, const char *where, int64_t layers, struct gemma4_heads *h,
		      struct err *e)
{
	const json_t *each = json_object_get(j, "per_layer_config");
	char path[512];
	bool seen = false;
	h->full_dim = 512;
	h->full_kv = h->kv;
	TRY(json_opt_bool(j, where, "attention_k_eq_v", &h->k_is_v, e));
	TRY(json_opt_int(j, where, "global_head_dim", 2, DIM_MOST, &h->full_dim, e));
	if (h->k_is_v)
		TRY(json_opt_int(j, where, "num_global_key_value_heads", 1, KV_MOST, &h->full_kv,
				 e));
	for (int64_t i = 0; json_is_object(each) && i < layers; i++) {
		const int windowed = gemma4_is_windowed(j, where, layers, i, e);
		TRY(windowed);
		char number[24];
		snprintf(number, sizeof number, "%lld", (long long)i);
		const json_t *o = json_object_get(each, number);
		int64_t d = h->dim, g = h->kv;
		size_t known = (size_t)(json_object_get(o, "head_dim") != NULL) +
			       (size_t)(json_object_get(o, "num_key_value_heads") != NULL);
		snprintf(path, sizeof path, "%s: 'per_layer_config': layer %s", where, number);
		if (o) {
			TRY(json_opt_int(o, path, "head_dim", 2, DIM_MOST, &d, e));
			TRY(json_opt_int(o, path, "num_key_value_heads", 1, KV_MOST, &g, e));
		}
		if (!windowed && !seen) {
			h->full_dim = d;
			h->full_kv = g;
		}
		seen |= !windowed;
		if (known != json_object_size(o) || d != (windowed ? h->dim : h->full_dim) ||
		    g != (windowed ? h->kv : h->full_kv))
			return err_set(
				e, ERR_UNSUPPORTED,
				"%s differs from the others of its kind; only 'head_dim' and "
				"'num_key_value_heads' of all layers without a window together "
				"are supported",
				path);
	}
	return 0;
}
