/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_bytebpe.c - byte-level BPE: GPT-2, SmolLM2, Llama 3, Qwen2, Qwen2.5, Qwen3.
 *
 * A pre-token's bytes are the first symbols. The file writes each byte as a printable character
 * (token_byte_char); here only the lookup tables depend on that. For a GGUF the pre-tokenizer is
 * found by its name in tokenizer.ggml.pre (token_pattern.c). */
#include "base/err.h"
#include "base/json.h"
#include "data/token.h"

#include <string.h>

static bool is_byte_level(const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "type"));
	if (!type)
		return false;
	if (!strcmp(type, "ByteLevel"))
		return true;
	const json_t *item;
	size_t i;
	if (!strcmp(type, "Sequence"))
		json_array_foreach(json_object_get(o, "pretokenizers"), i, item)
		{
			const char *inner = json_string_value(json_object_get(item, "type"));
			if (inner && !strcmp(inner, "ByteLevel"))
				return true;
		}
	return false;
}

static bool bytebpe_fits(const json_t *doc)
{
	return is_byte_level(json_object_get(doc, "pre_tokenizer"));
}

/* The bytes that a token's text stands for; a text with other characters stands for itself. */
static int decode_text(struct tokenizer *t, struct token *k, struct err *e)
{
	char *bytes = arena_alloc(&t->arena, k->ntext + 1u);
	uint32_t n = 0;
	if (!bytes)
		return err_nomem(e, k->ntext, "the vocabulary");
	if (utf8_valid(k->text, k->ntext) != k->ntext)
		return 0;
	for (size_t i = 0, len; i < k->ntext; i += len) {
		int b = token_char_byte(utf8_char(k->text + i, &len));
		if (b < 0)
			return 0;
		bytes[n++] = (char)b;
	}
	k->bytes = bytes;
	k->nbytes = n;
	return 0;
}

static int bytebpe_finish(struct tokenizer *t, const char *where, struct err *e)
{
	(void)where;
	for (size_t i = 0; i < t->ntok; i++)
		if (t->tok[i].flags & TOKEN_EXISTS && t->tok[i].bytes == t->tok[i].text)
			TRY(decode_text(t, &t->tok[i], e));
	return 0;
}

/* The tables for encoding, from the model's own vocabulary. */
static int fill_tables(struct tokenizer *t, struct err *e)
{
	for (int b = 0; b < 256; b++) {
		char text[4];
		size_t n = utf8_put(token_byte_char((uint8_t)b), text);
		t->byte_id[b] = strmap_get(&t->by_text, text, n);
	}
	if (!t->ignore_merges)
		return 0;
	TRY(strmap_init(&t->by_bytes, t->ntok, e));
	for (size_t i = 0; i < t->ntok; i++) {
		struct token *k = &t->tok[i];
		int32_t old;
		if (!(k->flags & TOKEN_EXISTS) || k->flags & TOKEN_ADDED)
			continue;
		TRY(decode_text(t, k, e));
		if (k->bytes != k->text)
			TRY(strmap_put(&t->by_bytes, k->bytes, k->nbytes, (int32_t)i, &old, e));
	}
	return 0;
}

static int bytebpe_from_json(struct tokenizer *t, const json_t *doc, const char *where,
			     struct err *e)
{
	const char *decoder = NULL;
	const json_t *o = json_object_get(doc, "decoder"), *inner = json_object_get(o, "decoders");
	if (json_array_size(inner) == 1)
		o = json_array_get(inner, 0);
	TRY(json_need_str(o, where, "type", &decoder, e));
	if (strcmp(decoder, "ByteLevel"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: byte-level BPE with the decoder '%.64s' is not supported",
			       where, decoder);
	if (t->byte_fallback)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: byte-level BPE with byte_fallback is not supported", where);
	return fill_tables(t, e);
}

static int bytebpe_from_gguf(struct tokenizer *t, const json_t *kv, const char *where,
			     struct err *e)
{
	const struct token_pre *pre;
	TRY(token_pre_find(kv, where, &pre, e));
	for (size_t i = 0; i < 4 && pre->pattern[i]; i++)
		TRY(token_split_regex(t, pre->pattern[i], SPLIT_ISOLATED, false, true, where, e));
	if (pre->nfc)
		t->step[t->nstep++] = (struct normal_step){ .kind = NORMAL_NFC };
	t->ignore_merges = pre->ignore_merges;
	/* bytes outside the vocabulary are dropped, as by the models' own tokenizer.json */
	t->unk = -1;
	t->nhead = pre->add_bos; /* the default of add_bos_token */
	TRY(merges_read(t, json_object_get(kv, "tokenizer.ggml.merges"), where, e));
	return fill_tables(t, e);
}

static int emit_symbols(struct token_run *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		TRY(tokens_add(s->out, s->sym[i].id, s->e));
	return 0;
}

static int bytebpe_word(struct token_run *s, const char *text, size_t n)
{
	const struct tokenizer *t = s->t;
	if (t->ignore_merges) {
		int32_t id = strmap_get(&t->by_bytes, text, n);
		if (id >= 0)
			return tokens_add(s->out, id, s->e);
	}
	TRY(symbols_reserve(s, n));
	size_t k = 0;
	bool unknown = false; /* the last symbol is the unknown token */
	for (size_t i = 0; i < n; i++) {
		int32_t id = t->byte_id[(unsigned char)text[i]];
		bool known = id >= 0;
		if (!known && (t->unk < 0 || (unknown && t->fuse_unk))) {
			if (k && unknown)
				s->sym[k - 1].len++;
			continue;
		}
		s->sym[k++] = (struct symbol){ known ? id : t->unk, (uint32_t)i, 1, 0, 0 };
		unknown = !known;
	}
	TRY(merge_symbols(s, text, k, &k));
	return emit_symbols(s, k);
}

const struct tokenizer_kind tokenizer_kind_bytebpe = {
	.name = "bytebpe",
	.gguf_models = { "gpt2" },
	.fits = bytebpe_fits,
	.from_json = bytebpe_from_json,
	.from_gguf = bytebpe_from_gguf,
	.finish = bytebpe_finish,
	.word = bytebpe_word,
	.bytes = bytebpe_word,
};
