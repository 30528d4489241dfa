/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - text to token ids and back, exactly as the model's own tokenizer does it.
 *
 * Made from Hugging Face's tokenizer.json or from a GGUF's tokenizer.* KV pairs. Kinds are rows of
 * tokenizer.def: `bytebpe` (byte-level BPE: GPT-2, Llama 3, Qwen, SmolLM) and `spm`
 * (SentencePiece-style BPE with byte fallback: Llama 2, TinyLlama, Mistral). A tokenizer is
 * immutable: any number of threads may use it. A part of tokenizer.json that is not supported is an
 * error that names it. */
#ifndef HS_DATA_TOKENIZER_H
#define HS_DATA_TOKENIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct buf;
struct tokenizer;

struct tokens {
	int32_t *id;
	size_t n, cap;
};

void tokens_release(struct tokens *t);
int tokens_add(struct tokens *t, int32_t id, struct err *e);

int tokenizer_from_file(const char *tokenizer_json, const json_t *tokenizer_config,
			struct tokenizer **t_p, struct err *e);
int tokenizer_from_json(const json_t *doc, const json_t *tokenizer_config, const char *where,
			struct tokenizer **t_p, struct err *e);
int tokenizer_from_gguf(const json_t *kv, const char *where, struct tokenizer **t_p, struct err *e);
void tokenizer_free(struct tokenizer *t);

/* The other way: tokenizer.json and tokenizer_config.json for a GGUF's KV pairs, which give the
 * same ids. `chat_template` MAY be NULL. json_decref both. */
int tokenizer_gguf_to_json(const json_t *kv, const char *chat_template, const char *where,
			   json_t **doc_p, json_t **config_p, struct err *e);

/* Appends the ids of `text`. `add_special`: what the model's post-processor adds (BOS, EOS). The
 * text of a special token ("<|im_start|>") becomes its id only with `parse_special`; the text of
 * messages is encoded without. Invalid UTF-8 is encoded byte by byte where the model has tokens for
 * that, else as its unknown token. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
		     bool parse_special, struct tokens *out, struct err *e);
/* Appends the text of the ids; special tokens are left out with `skip_special`. May end inside a
 * UTF-8 sequence. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool skip_special,
		     struct buf *out, struct err *e);

size_t tokenizer_vocab_size(const struct tokenizer *t); /* largest id + 1 */
/* of a token written exactly so, or -1 */
int32_t tokenizer_id(const struct tokenizer *t, const char *token);
const char *tokenizer_token(const struct tokenizer *t, int32_t id); /* NULL: no such id */
int32_t tokenizer_bos(const struct tokenizer *t);                   /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);
/* Sets `name` (bos_token, eos_token) to a token of the vocabulary, for records, templates and ends
 * of answers; what the post-processor adds stays. Before threads use the tokenizer. */
int tokenizer_set(struct tokenizer *t, const char *name, const char *token, struct err *e);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

#endif
