/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_keys.h - the keys of one architecture in a GGUF, on their way into a config.json. */
#ifndef HS_FILE_GGUF_KEYS_H
#define HS_FILE_GGUF_KEYS_H

#include "file/gguf.h"
#include "file/gguf_names.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

struct gguf_keys {
	const struct gguf *g;
	const struct gguf_arch *arch;
	json_t *o; /* config.json */
};

#define GGUF_INT_MOST 2000000000

/* Under "<arch>.name"; NULL: no such key. */
const struct gguf_kv *keys_find(const struct gguf_keys *m, const char *name);
/* A number under "<arch>.name"; a missing one is an error (`need`) or leaves *v_p. */
int keys_number(const struct gguf_keys *m, const char *name, bool need, double lo, double hi,
		double *v_p, struct err *e);
int keys_integer(const struct gguf_keys *m, const char *name, bool need, int64_t lo, int64_t *v_p,
		 struct err *e);
/* A tensor of rot/2 positive numbers of F32, one for each rotary frequency; *list_p: a new
 * reference. */
int keys_factors(const struct gguf_keys *m, const struct gguf_tensor *t, int64_t rot,
		 json_t **list_p, struct err *e);
void keys_set(const struct gguf_keys *m, const char *key, int64_t v);

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Heads, kinds of layers and frequencies of Gemma 4; `theta`: of layers without a window. */
int gguf_config_gemma4(const struct gguf_keys *m, double theta, struct err *e);

#endif
