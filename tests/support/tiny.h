/* SPDX-License-Identifier: Apache-2.0 */
/* tiny.h - a small model folder, data and a configuration made on the spot, for tests of whole
 * runs.
 *
 * The model is of the Llama family with random weights and a byte-level tokenizer (one token a
 * byte, plus <s>, </s>); data are short prompt/completion records of unequal length. Everything
 * lies in a folder of its own under $TMPDIR (or /tmp). */
#ifndef HS_TESTS_SUPPORT_TINY_H
#define HS_TESTS_SUPPORT_TINY_H

#include "config/config.h"

struct tiny {
	char dir[256]; /* holds model/, data.jsonl, runs */
	int layers;
	bool tied; /* the head is the embedding */
	int width; /* 1; wide: 3 */
};

void tiny_make(struct tiny *t, int layers, int records); /* fails the test on an error */
/* The same model, but its head is its embedding. */
void tiny_make_tied(struct tiny *t, int layers, int records);
/* The same with matrices of 3 times as many rows and columns, of several blocks (STATE_BLOCK). */
void tiny_make_wide(struct tiny *t, int layers, int records);
/* A model with this config.json, which has TINY_COMMON in it. */
#define TINY_COMMON                                                                                \
	"\"hidden_size\":32,\"intermediate_size\":40,\"num_hidden_layers\":4,"                     \
	"\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":258,"                  \
	"\"max_position_embeddings\":512"
void tiny_make_model(struct tiny *t, const char *config, int records);
/* DIR/preferences.jsonl: 40 records of type passthrough.default. */
void tiny_preferences(const struct tiny *t, enum prefer_data kind);
/* All numbers of a token's embedding in the model that was made. */
void tiny_poison(const struct tiny *t, int token, float v);
void tiny_remove(struct tiny *t);
/* A configuration for it; `more` are further "key=value" overrides, ended by NULL. output_dir is
 * DIR/`run`. */
struct config *tiny_config(const struct tiny *t, const char *run, const char *const *more);
/* Whole file, or fails the test; mem_free. */
char *tiny_read(const struct tiny *t, const char *name, size_t *n_p);

#endif
