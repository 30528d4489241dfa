/* SPDX-License-Identifier: Apache-2.0 */
/* model_exaone4.c - EXAONE 4 (LG AI Research 2025, arXiv 2507.11407, section 2.1): norms behind
 * attention and MLP, and on each head of q and k; large ones have a window in three layers of four,
 * and the fourth does not rotate. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

#include <string.h>

/* `sliding_window_pattern`: a number n, where each n-th layer has no window; or letters, repeated:
 * L is a layer with a window, G one without, and the last layer has none. */
static int read_pattern(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const json_t *p = json_object_get(j, "sliding_window_pattern");
	const char *letters = json_string_value(p);
	int64_t every = 4;
	if (!letters)
		TRY(json_opt_int(j, where, "sliding_window_pattern", 1, 1 << 20, &every, e));
	const size_t n = letters ? strlen(letters) : 0;
	if (letters && (!n || strspn(letters, "LG") != n))
		return err_set(e, ERR_INPUT,
			       "%s: 'sliding_window_pattern' must be a number, or letters L and G",
			       where);
	model_window_every(c, c->window, every);
	for (int64_t i = 0; i < c->layers && letters; i++)
		c->windowed[i] = letters[(size_t)i % n] == 'L' && i < c->layers - 1;
	return 0;
}

static int read_exaone4(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 4096;
	c->norms = NORMS_BEHIND;
	c->qk_norm = true;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	if (json_is_null(json_object_get(j, "sliding_window")))
		window = 0;
	model_window_layers(c, window, 0);
	if (window)
		TRY(read_pattern(j, where, c, e));
	TRY(model_window_types(j, where, c, e));
	for (int64_t i = 0; i < c->layers; i++)
		c->no_rope[i] = window && !c->windowed[i];
	return 0;
}

static const char *const types[] = { "exaone4", NULL };
static const char *const keys[] = { "sliding_window", "sliding_window_pattern", "layer_types",
				    NULL };

const struct model_family model_exaone4 = { .name = "exaone4",
					    .help = "EXAONE 4",
					    .model_types = types,
					    .keys = keys,
					    .norm_eps = 1e-5,
					    .read = read_exaone4 };
