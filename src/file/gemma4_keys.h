/* SPDX-License-Identifier: Apache-2.0 */
/* gemma4_keys.h - keys of Gemma 4 about its two kinds of layers, for its configuration and for a
 * GGUF (transformers, models/gemma4, configuration_gemma4.py). */
#ifndef HS_FILE_GEMMA4_KEYS_H
#define HS_FILE_GEMMA4_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

/* Heads of layers with a window, and of those without. */
struct gemma4_heads {
	int64_t dim, kv, full_dim, full_kv;
	bool k_is_v; /* of those without */
};

/* Whether layer `i` of `layers` has a window: by `layer_types`, else five of six have. The last one
 * has none, whatever is said. */
int gemma4_is_windowed(const json_t *j, const char *where, int64_t layers, int64_t i,
		       struct err *e);
/* What is said of the layers without a window: in files of the hub by keys of their own, in those
 * of transformers 5.24 layer by layer. `dim` and `kv` are known. */
int gemma4_read_heads(const json_t *j, const char *where, int64_t layers, struct gemma4_heads *h,
		      struct err *e);

#endif
