/* SPDX-License-Identifier: Apache-2.0 */
/* small.h - the smallest model that has everything (3 layers, 2 heads over 1, vocabulary 32), for
 * fuzz targets of the job's state machines. */
#ifndef HS_TESTS_FUZZ_SMALL_H
#define HS_TESTS_FUZZ_SMALL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "file/atomic.h"
#include "file/safetensors.h"
#include "proto/protocol.h"

enum {
	SMALL_LAYERS = 3,
	SMALL_LINEARS = LIN_QKV /* not fused */,
	SMALL_VOCAB = 32,
	SMALL_HIDDEN = 8
};

static const char small_config[] =
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_"
	"layers\":3,\"num_attention_heads\":2,"
	"\"num_key_value_heads\":1,\"head_dim\":4,\"vocab_size\":32,\"rms_norm_eps\":1e-5,\"rope_"
	"theta\":10000.0,"
	"\"max_position_embeddings\":64,\"tie_word_embeddings\":false,\"hidden_act\":\"silu\"}";

static inline void small_model(struct model_config *c)
{
	struct err e = { 0 };
	json_t *j;
	if (json_parse_text(small_config, strlen(small_config), "small", &j, &e) < 0 ||
	    model_config_read(j, "small", c, &e) < 0)
		abort();
	json_decref(j);
}

/* The shape of a parameter by its name; 0 when there is none. */
static inline int small_shape(const struct model_config *c, const char *name, int64_t shape[2])
{
	shape[1] = 1;
	if (model_knows_tensor(c, name) != 1)
		return 0;
	if (strstr(name, "norm")) {
		shape[0] = c->hidden;
		return 1;
	}
	for (int l = 0; l < SMALL_LINEARS; l++)
		if (strstr(name, linear_name((enum linear)l))) {
			linear_dims(c, 0, (enum linear)l, shape);
			return 2;
		}
	shape[0] = c->vocab;
	shape[1] = c->hidden;
	return 2;
}

/* Number i of every parameter. */
static inline float small_value(uint64_t i) { return (float)(i % 7) * 0.25f; }

enum { SMALL_TENSORS = SMALL_LAYERS * (SMALL_LINEARS + 2) + 3 };

/* The names of all parameters. */
static inline size_t small_names(char name[SMALL_TENSORS][96])
{
	static const char *const norms[] = { "input_layernorm", "post_attention_layernorm" };
	size_t n = 0;
	for (int l = 0; l < SMALL_LAYERS; l++) {
		for (int i = 0; i < SMALL_LINEARS; i++)
			snprintf(name[n++], sizeof name[0], "model.layers.%d.%s.weight", l,
				 linear_path((enum linear)i));
		for (int i = 0; i < 2; i++)
			snprintf(name[n++], sizeof name[0], "model.layers.%d.%s.weight", l,
				 norms[i]);
	}
	snprintf(name[n++], sizeof name[0], "model.embed_tokens.weight");
	snprintf(name[n++], sizeof name[0], "model.norm.weight");
	snprintf(name[n++], sizeof name[0], "lm_head.weight");
	return n;
}

static inline int small_bytes(void *ctx, const struct st_spec *s, uint64_t off, uint64_t n,
			      void *dst, struct err *e)
{
	(void)ctx;
	(void)s;
	(void)e;
	for (uint64_t i = 0; i < n / 4; i++)
		((float *)dst)[i] = small_value(off / 4 + i);
	return 0;
}

/* The model as a folder with safetensors. */
static inline void small_write_model(const struct model_config *c, const char *folder)
{
	static char name[SMALL_TENSORS][96];
	struct st_spec spec[SMALL_TENSORS];
	size_t n = small_names(name);
	char path[128];
	struct err e = { 0 };
	for (size_t i = 0; i < n; i++) {
		spec[i] = (struct st_spec){ .name = name[i], .dtype = DT_F32 };
		spec[i].ndim = small_shape(c, name[i], spec[i].shape);
	}
	snprintf(path, sizeof path, "%s/config.json", folder);
	if (atomic_write_file(path, small_config, strlen(small_config), &e) < 0)
		abort();
	snprintf(path, sizeof path, "%s/model.safetensors", folder);
	if (st_write(path, spec, n, NULL, small_bytes, NULL, &e) < 0)
		abort();
}

/* The bytes of a fuzz input, taken from the front; zeros behind its end. */
struct feed {
	const uint8_t *p;
	size_t n;
};

static inline unsigned feed_byte(struct feed *f)
{
	if (!f->n)
		return 0;
	f->n--;
	return *f->p++;
}

static inline size_t feed_bytes(struct feed *f, size_t most, const uint8_t **p)
{
	size_t n = most < f->n ? most : f->n;
	*p = f->p;
	f->p += n;
	f->n -= n;
	return n;
}

static inline void feed_copy(struct feed *f, size_t most, void *dst)
{
	const uint8_t *p;
	size_t n = feed_bytes(f, most, &p);
	if (n)
		memcpy(dst, p, n);
}

#endif
