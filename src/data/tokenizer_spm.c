/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_spm.c - SentencePiece-style BPE: Llama 2, TinyLlama, Mistral v0.1 to v0.3.
 *
 * Characters are the first symbols; spaces have become U+2581. Characters outside the vocabulary
 * become the tokens of their bytes (<0x00> to <0xFF>), else the unknown token. tokenizer.json
 * brings merges, and so does a GGUF of Gemma 4. Others bring a score for each token: any two
 * neighbours that together are a token are joined, the best score first (SentencePiece's
 * bpe_model.cc; llama.cpp does the same), and text that is not a token at the end becomes bytes. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "\xe2\x96\x81"; /* U+2581 */
enum { MARK = 3 };

static bool spm_fits(const json_t *doc)
{
	const json_t *model = json_object_get(doc, "model");
	const char *pre =
		json_string_value(json_object_get(json_object_get(doc, "pre_tokenizer"), "type"));
	return json_is_true(json_object_get(model, "byte_fallback")) ||
	       (pre && !strcmp(pre, "Metaspace")) ||
	       json_is_object(json_object_get(doc, "normalizer"));
}

static int byte_value(const struct token *k)
{
	static const char hex[] = "0123456789ABCDEF";
	if (k->ntext != 6 || memcmp(k->text, "<0x", 3) || k->text[5] != '>')
		return -1;
	const char *a = k->text[3] ? strchr(hex, k->text[3]) : NULL,
		   *b = k->text[4] ? strchr(hex, k->text[4]) : NULL;
	return a && b ? (int)((a - hex) * 16 + (b - hex)) : -1;
}

/* Whether a token has a mark after other text, so that a merge could cross the beginning of
 * a word. */
static bool crosses(const struct token *k)
{
	size_t i = 0;
	while (i + MARK <= k->ntext && !memcmp(k->text + i, mark, MARK))
		i += MARK;
	return memmem(k->text + i, k->ntext - i, mark, MARK) != NULL;
}

static int fill_tables(struct tokenizer *t)
{
	t->spaces_apart = strmap_get(&t->by_text, mark, MARK) >= 0;
	for (int b = 0; b < 256; b++) {
		char text[8];
		snprintf(text, sizeof text, "<0x%02X>", b);
		t->byte_id[b] = strmap_get(&t->by_text, text, 6);
	}
	for (size_t i = 0; i < t->ntok; i++)
		if (t->tok[i].flags & TOKEN_EXISTS && !(t->tok[i].flags & TOKEN_ADDED) &&
		    crosses(&t->tok[i]))
			t->spaces_apart = false;
	return 0;
}

static int read_decoder(struct tokenizer *t, const json_t *o, const char *where, bool inside,
			struct err *e)
{
	const char *type = NULL, *a = NULL, *b = NULL;
	const json_t *item;
	size_t i;
	TRY(json_need_str(o, where, "type", &type, e));
	if (!strcmp(type, "Sequence") && !inside) {
		json_array_foreach(json_object_get(o, "decoders"), i, item)
			TRY(read_decoder(t, item, where, true, e));
		return 0;
	}
	if (!strcmp(type, "Metaspace") && !t->decode_replace && t->nsplit == 1 &&
	    t->split_step[0].kind == SPLIT_METASPACE && t->split_step[0].nmark == MARK &&
	    !memcmp(t->split_step[0].mark, mark, MARK)) {
		const char *scheme = NULL;
		bool prefix = true;
		TRY(json_opt_str(o, where, "prepend_scheme", &scheme, e));
		TRY(json_opt_bool(o, where, "add_prefix_space", &prefix, e));
		t->decode_replace = true;
		t->decode_metaspace = scheme ? strcmp(scheme, "never") != 0 : prefix;
		return 0;
	}
	if (!strcmp(type, "Replace") && inside && !t->decode_bytes) {
		TRY(json_need_str(json_object_get(o, "pattern"), where, "String", &a, e));
		TRY(json_need_str(o, where, "content", &b, e));
		if (!strcmp(a, mark) && !strcmp(b, " ")) {
			t->decode_replace = true;
			return 0;
		}
	}
	if (!strcmp(type, "ByteFallback")) {
		t->decode_bytes = true;
		return 0;
	}
	if (!strcmp(type, "Fuse"))
		return 0;
	if (!strcmp(type, "Strip") && inside) {
		int64_t start = 0, stop = 0;
		TRY(json_need_str(o, where, "content", &a, e));
		TRY(json_need_int(o, where, "start", 0, 16, &start, e));
		TRY(json_need_int(o, where, "stop", 0, 16, &stop, e));
		if (!strcmp(a, " ") && !stop) {
			t->decode_strip = (uint32_t)start;
			return 0;
		}
	}
	return err_set(e, ERR_UNSUPPORTED, "%s: this use of the decoder '%.64s' is not supported",
		       where, type);
}

static int spm_from_json(struct tokenizer *t, const json_t *doc, const char *where, struct err *e)
{
	for (size_t i = 0; i < t->nsplit; i++)
		if (t->split_step[i].kind == SPLIT_PREFIX_SPACE)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: ByteLevel in a tokenizer of SentencePiece's kind is "
				       "not supported",
				       where);
	TRY(read_decoder(t, json_object_get(doc, "decoder"), where, false, e));
	return fill_tables(t);
}

/* ---- scores --------------------------------------------------------------------------------- */

struct scored {
	double score;
	int32_t id;
};

static int by_score(const void *a, const void *b)
{
	double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
	return (x < y) - (x > y);
}

/* The rank of each token by its score; tokens that no merge produces have none. */
static int read_scores(struct tokenizer *t, const json_t *scores, const char *where, bool *flat_p,
		       struct err *e)
{
	size_t n = 0;
	if (json_array_size(scores) != t->ntok)
		return err_set(e, ERR_INPUT, "%s: %zu tokens, but %zu scores", where, t->ntok,
			       json_array_size(scores));
	struct scored *s = mem_array(t->ntok, sizeof *s);
	uint32_t *rank = mem_array(t->ntok, sizeof *rank);
	int rc = 0;
	if (!s || !rank) {
		rc = err_nomem(e, t->ntok * sizeof *s, "the scores");
		goto out;
	}
	for (size_t i = 0; i < t->ntok; i++) {
		const json_t *v = json_array_get(scores, i);
		rank[i] = UINT32_MAX;
		if (!json_is_number(v)) {
			rc = err_set(e, ERR_INPUT, "%s: the score of token %zu is not a number",
				     where, i);
			goto out;
		}
		if (!(t->tok[i].flags & (TOKEN_ADDED | TOKEN_BYTE)) && byte_value(&t->tok[i]) < 0)
			s[n++] = (struct scored){ json_number_value(v), (int32_t)i };
	}
	qsort(s, n, sizeof *s, by_score);
	uint32_t r = 0;
	for (size_t i = 0; i < n; i++) {
		if (i && s[i].score < s[i - 1].score)
			r++;
		rank[s[i].id] = r;
	}
	*flat_p = n < 2 || r == 0;
	t->merges.rank = rank;
	t->merges.by_score = true;
	rank = NULL;
out:
	mem_free(rank);
	mem_free(s);
	return rc;
}

bool token_is_gemma4(const json_t *kv)
{
	const char *model = json_string_value(json_object_get(kv, "tokenizer.ggml.model"));
	return model && !strcmp(model, "gemma4");
}

static int spm_from_gguf(struct tokenizer *t, const json_t *kv, const char *where, struct err *e)
{
	const json_t *scores = json_object_get(kv, "tokenizer.ggml.scores"),
		     *merges = json_object_get(kv, "tokenizer.ggml.merges");
	const bool gemma4 = token_is_gemma4(kv);
	bool prefix = !gemma4, trim = false, flat = true;
	TRY(json_opt_bool(kv, where, "tokenizer.ggml.add_space_prefix", &prefix, e));
	TRY(json_opt_bool(kv, where, "tokenizer.ggml.remove_extra_whitespaces", &trim, e));
	if (trim)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: a tokenizer with remove_extra_whitespaces is not supported",
			       where);
	if (prefix)
		t->step[t->nstep++] =
			(struct normal_step){ .kind = NORMAL_PREPEND, .to = mark, .nto = MARK };
	t->step[t->nstep++] = (struct normal_step){
		.kind = NORMAL_REPLACE, .from = " ", .nfrom = 1, .to = mark, .nto = MARK
	};
	if (scores && !gemma4)
		TRY(read_scores(t, scores, where, &flat, e));
	/* Some writers gave all tokens the same score: then only the merges give the order. */
	if (flat && merges) {
		merges_release(&t->merges);
		TRY(merges_read(t, merges, where, e));
	} else if (flat) {
		return err_set(e, ERR_INPUT, "%s: the tokenizer has neither scores nor merges",
			       where);
	}
	t->byte_fallback = t->fuse_unk = true;
	t->decode_replace = t->decode_bytes = true;
	t->decode_strip = prefix;
	t->nhead = 1; /* the default of add_bos_token */
	return fill_tables(t);
}

static int spm_finish(struct tokenizer *t, const char *where, struct err *e)
{
	(void)where;
	for (size_t i = 0; i < t->ntok; i++) {
		struct token *k = &t->tok[i];
		if (!(k->flags & TOKEN_EXISTS))
			continue;
		int byte = byte_value(k);
		if (byte >= 0 && t->decode_bytes) {
			char one = (char)byte;
			k->bytes = token_copy(t, &one, 1);
			k->nbytes = 1;
			k->flags |= TOKEN_BYTE;
		} else if (t->decode_replace && memmem(k->text, k->ntext, mark, MARK)) {
			char *p = arena_alloc(&t->arena, k->ntext + 1u);
			size_t n = 0;
			for (size_t j = 0; p && j < k->ntext;) {
				bool at_mark =
					j + MARK <= k->ntext && !memcmp(k->text + j, mark, MARK);
				p[n++] = at_mark ? ' ' : k->text[j];
				j += at_mark ? MARK : 1;
			}
			k->bytes = p;
			k->nbytes = (uint32_t)n;
		}
		if (!k->bytes)
			return err_nomem(e, k->ntext, "the vocabulary");
	}
	return 0;
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* The bytes of one character as tokens, when there is one for each. */
static bool has_bytes(const struct tokenizer *t, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (t->byte_id[(unsigned char)text[i]] < 0)
			return false;
	return t->byte_fallback;
}

static int emit_bytes(struct token_run *s, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		TRY(tokens_add(s->out, s->t->byte_id[(unsigned char)text[i]], s->e));
	return 0;
}

static int32_t char_id(const struct tokenizer *t, const char *text, size_t n)
{
	int32_t id = strmap_get(&t->by_text, text, n);
	return id >= 0 && t->tok[id].flags & (TOKEN_SPECIAL | TOKEN_OUTSIDE) ? -1 : id;
}

/* With scores, symbols that are no token take part in merging and become bytes at the end. */
static int word_by_score(struct token_run *s, const char *text, size_t n)
{
	const struct tokenizer *t = s->t;
	size_t k = 0;
	TRY(symbols_reserve(s, n));
	for (size_t i = 0, len; i < n; i += len) {
		utf8_char(text + i, &len);
		s->sym[k++] = (struct symbol){ char_id(t, text + i, len), (uint32_t)i,
					       (uint32_t)len, 0, 0 };
	}
	TRY(merge_symbols(s, text, k, &k));
	bool unknown = false;
	for (size_t i = 0; i < k; i++) {
		const struct symbol *y = &s->sym[i];
		bool was = unknown;
		unknown = false;
		if (y->id >= 0) {
			TRY(tokens_add(s->out, y->id, s->e));
		} else if (has_bytes(t, text + y->start, y->len)) {
			TRY(emit_bytes(s, text + y->start, y->len));
		} else {
			unknown = true;
			if (t->unk >= 0 && !(was && t->fuse_unk))
				TRY(tokens_add(s->out, t->unk, s->e));
		}
	}
	return 0;
}

/* With merges, the order of `tokenizers` (models/bpe/model.rs): bytes and unknowns are symbols like
 * others before merging; an unknown symbol is added only when a known one follows, because it may
 * grow until then. */
static int word_by_merges(struct token_run *s, const char *text, size_t n)
{
	const struct tokenizer *t = s->t;
	size_t k = 0;
	bool waiting = false;
	TRY(symbols_reserve(s, n + 1));
	for (size_t i = 0, len; i < n; i += len) {
		utf8_char(text + i, &len);
		int32_t id = char_id(t, text + i, len);
		if (id < 0 && has_bytes(t, text + i, len)) {
			for (size_t j = 0; j < len; j++)
				s->sym[k++] =
					(struct symbol){ t->byte_id[(unsigned char)text[i + j]],
							 (uint32_t)(i + j), 1, 0, 0 };
			continue;
		}
		if (id < 0 && t->unk < 0)
			continue;
		if (waiting && (id >= 0 || !t->fuse_unk))
			s->sym[k++] = (struct symbol){ t->unk, (uint32_t)i, 1, 0, 0 };
		waiting = id < 0;
		if (id >= 0)
			s->sym[k++] = (struct symbol){ id, (uint32_t)i, (uint32_t)len, 0, 0 };
	}
	if (waiting)
		s->sym[k++] = (struct symbol){ t->unk, (uint32_t)n, 1, 0, 0 };
	TRY(merge_symbols(s, text, k, &k));
	for (size_t i = 0; i < k; i++)
		TRY(tokens_add(s->out, s->sym[i].id, s->e));
	return 0;
}

static int one_word(struct token_run *s, const char *text, size_t n)
{
	const struct tokenizer *t = s->t;
	int32_t id = t->ignore_merges ? char_id(t, text, n) : -1;
	if (id >= 0)
		return tokens_add(s->out, id, s->e);
	return t->merges.by_score ? word_by_score(s, text, n) : word_by_merges(s, text, n);
}

/* Where no merge can cross the beginning of a word, words are merged one by one: the same
 * ids, faster. */
static int spm_word(struct token_run *s, const char *text, size_t n)
{
	if (!s->t->spaces_apart || s->t->ignore_merges)
		return one_word(s, text, n);
	size_t begin = 0;
	while (begin < n) {
		size_t end = begin;
		while (end + MARK <= n && !memcmp(text + end, mark, MARK))
			end += MARK;
		const char *next = memmem(text + end, n - end, mark, MARK);
		end = next ? (size_t)(next - text) : n;
		TRY(one_word(s, text + begin, end - begin));
		begin = end;
	}
	return 0;
}

static int spm_bytes(struct token_run *s, const char *text, size_t n)
{
	const struct tokenizer *t = s->t;
	if (has_bytes(t, text, n))
		return emit_bytes(s, text, n);
	for (size_t i = 0; i < n && t->unk >= 0; i++)
		if (!i || !t->fuse_unk)
			TRY(tokens_add(s->out, t->unk, s->e));
	return 0;
}

const struct tokenizer_kind tokenizer_kind_spm = {
	.name = "spm",
	.gguf_models = { "llama", "gemma4" },
	.fits = spm_fits,
	.from_json = spm_from_json,
	.from_gguf = spm_from_gguf,
	.finish = spm_finish,
	.word = spm_word,
	.bytes = spm_bytes,
};
