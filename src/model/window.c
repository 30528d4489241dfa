/* SPDX-License-Identifier: Apache-2.0 */
/* window.c - see window.h. */
#include "model/window.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

void model_window_layers(struct model_config *c, int64_t window, int64_t first)
{
	c->window = window;
	for (int64_t i = 0; i < c->layers; i++)
		c->windowed[i] = window > 0 && i >= first;
}

void model_window_every(struct model_config *c, int64_t window, int64_t every)
{
	model_window_layers(c, window, 0);
	for (int64_t i = every - 1; i < c->layers; i += every)
		c->windowed[i] = 0;
}

int model_window_types(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const json_t *types = json_object_get(j, "layer_types");
	if (!json_is_array(types))
		return 0;
	if ((int64_t)json_array_size(types) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'layer_types' has %zu entries for %lld layers",
			       where, json_array_size(types), (long long)c->layers);
	for (int64_t i = 0; i < c->layers; i++) {
		const char *t = json_string_value(json_array_get(types, (size_t)i));
		bool slides = t && !strcmp(t, "sliding_attention");
		if (!t || (!slides && strcmp(t, "full_attention")))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'layer_types': '%s' is not supported", where,
				       t ? t : "?");
		c->windowed[i] = slides && c->window > 0;
	}
	return 0;
}

int qwen_read_window(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	bool use = false, mrope = false;
	int64_t window = 4096, first = 28;
	TRY(json_opt_bool(j, where, "use_sliding_window", &use, e));
	TRY(json_opt_bool(j, where, "use_mrope", &mrope, e));
	/* transformers writes 0 where no window is used */
	TRY(json_opt_int(j, where, "sliding_window", use, 1ll << 40, &window, e));
	TRY(json_opt_int(j, where, "max_window_layers", 0, 1 << 20, &first, e));
	if (mrope)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'use_mrope' is true; only false is supported", where);
	model_window_layers(c, use ? window : 0, first);
	return model_window_types(j, where, c, e);
}
