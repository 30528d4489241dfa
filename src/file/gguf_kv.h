/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_kv.h - the KV pairs of a GGUF that is written: building them, and making them for a model
 * from a Hugging Face folder.
 *
 * Pairs can be added without checks: the buffer records when memory ran out (buf.h). */
#ifndef HS_FILE_GGUF_KV_H
#define HS_FILE_GGUF_KV_H

#include "base/buf.h"
#include "file/gguf_layout.h"
#include "file/gguf_names.h"
#include "file/model_file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct gguf_pairs {
	struct buf b;
	uint64_t n;
};

void pairs_str(struct gguf_pairs *p, const char *key, const char *s);
void pairs_u32(struct gguf_pairs *p, const char *key, uint32_t v);
void pairs_f32(struct gguf_pairs *p, const char *key, float v);
void pairs_bool(struct gguf_pairs *p, const char *key, bool v);
/* The head of an array of `count` values of a kind (gguf.h); the values follow in p->b. */
void pairs_array(struct gguf_pairs *p, const char *key, uint32_t kind, uint64_t count);
void pairs_text(struct gguf_pairs *p, const char *s, size_t n); /* one string, as in an array */

/* The hyperparameters of config.json that the tensors depend on. */
#define GGUF_FACTORS 1024
struct gguf_shape {
	const struct gguf_arch *arch;
	struct gguf_heads head;
	int64_t rot, layers, vocab, heads, hidden, ffn, experts;
	int64_t extra; /* layers behind the last one, that are not written */
	bool tied;
	/* Tensors of rot/2 numbers that divide rotary frequencies. */
	struct {
		const char *name;
		float v[GGUF_FACTORS];
	} factors[2];
	int nfactors;
};

/* config.json on its way into pairs: p is NULL when only the shape is wanted. */
struct gguf_maker {
	const json_t *c;
	const char *where;
	struct gguf_pairs *p;
	struct gguf_shape *s;
};
/* A pair "<arch>.name". */
void maker_u32(const struct gguf_maker *m, const char *name, int64_t v);
void maker_f32(const struct gguf_maker *m, const char *name, double v);
/* A tensor of s->rot / 2 numbers, to be filled. At most two are possible. */
float *maker_factors(const struct gguf_maker *m, const char *name);
/* What only some families have: factors, caps, windows. ERR_UNSUPPORTED names a key with a value
 * that llama.cpp takes as given otherwise for the family. */
int gguf_special(const struct gguf_maker *m, struct err *e);

/* config.json as pairs (llama.cpp: convert_hf_to_gguf.py). `p` may be NULL when only the shape
 * is wanted. */
int gguf_meta(const struct model_file *base, struct gguf_pairs *p, struct gguf_shape *s_p,
	      struct err *e);
/* tokenizer.json as tokenizer.* pairs: byte-level BPE becomes "gpt2" with the name of its
 * pre-tokenizer, SentencePiece-style BPE becomes "llama" with the negated ranks of its merges as
 * scores. Without a tokenizer.json the model is written without a tokenizer. */
int gguf_vocab(const struct model_file *base, int64_t vocab, struct gguf_pairs *p, struct err *e);

#endif
