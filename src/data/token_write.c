/* SPDX-License-Identifier: Apache-2.0 */
/* token_write.c - tokenizer.json and tokenizer_config.json from a GGUF's KV pairs: what
 * token_gguf.c reads, in the words of Hugging Face's `tokenizers`.
 *
 * Scores of SentencePiece's kind become merges: for each token, the best score first, every way to
 * put it together from two others. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."

enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_BYTE = 6, SPLITS_MOST = 64 };

static const char mark[] = "\xe2\x96\x81"; /* U+2581 */

struct source {
	const json_t *kv, *tokens, *types;
	const char *where;
	bool spm, flat; /* flat: the merges give the order, not the scores */
	const struct token_pre *pre;
	bool prefix;
};

static json_int_t type_of(const struct source *s, size_t i)
{
	return json_integer_value(json_array_get(s->types, i));
}

static bool is_added(const struct source *s, size_t i)
{
	json_int_t type = type_of(s, i);
	return type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER_DEFINED;
}

/* "" has a name of its own, as token_gguf.c gives it. */
static const char *text_of(const struct source *s, size_t i, char empty[32])
{
	const char *text = json_string_value(json_array_get(s->tokens, i));
	if (text && *text)
		return text;
	snprintf(empty, 32, "[EMPTY_%zu]", i);
	return empty;
}

/* A token by the key that holds its id; NULL: none. */
static const char *special(const struct source *s, const char *key, size_t *id_p, char empty[32])
{
	const json_t *v = json_object_get(s->kv, key);
	json_int_t id = json_integer_value(v);
	if (!json_is_integer(v) || id < 0 || (size_t)id >= json_array_size(s->tokens))
		return NULL;
	*id_p = (size_t)id;
	return text_of(s, (size_t)id, empty);
}

static bool flag(const struct source *s, const char *key, bool usual)
{
	const json_t *v = json_object_get(s->kv, key);
	return json_is_boolean(v) ? json_is_true(v) : usual;
}

/* ---- added tokens and vocabulary ---- */

static json_t *added_tokens(const struct source *s)
{
	json_t *list = json_array();
	for (size_t i = 0; i < json_array_size(s->tokens); i++) {
		char empty[32];
		if (is_added(s, i))
			json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id",
							      (json_int_t)i, "content",
							      text_of(s, i, empty), "single_word",
							      0, "lstrip", 0, "rstrip", 0,
							      "normalized", 0, "special",
							      type_of(s, i) != TYPE_USER_DEFINED));
	}
	return list;
}

/* With the added tokens: `tokenizers` takes their ids from here, and counts on behind the last one
 * for those that are not here. */
static json_t *vocabulary(const struct source *s)
{
	json_t *o = json_object();
	for (size_t i = 0; i < json_array_size(s->tokens); i++) {
		char empty[32];
		json_object_set_new(o, text_of(s, i, empty), json_integer((json_int_t)i));
	}
	return o;
}

/* ---- merges ---- */

struct scored {
	double score;
	size_t id;
};

static int by_score(const void *a, const void *b)
{
	const struct scored *x = a, *y = b;
	if (x->score != y->score)
		return x->score < y->score ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* A pair that makes a token, with the scores' places of its halves. */
struct way {
	size_t cut, left, right;
};

static int by_halves(const void *a, const void *b)
{
	const struct way *x = a, *y = b;
	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	return x->right < y->right ? -1 : x->right > y->right;
}

static int add_ways(const json_t *vocab, const char *text, json_t *merges, struct err *e)
{
	size_t n = strlen(text), ways = 0;
	struct way way[SPLITS_MOST];
	char half[2][TOKEN_ADDED_BYTES_MAX];
	if (n >= sizeof half[0])
		return 0;
	for (size_t cut = 1; cut < n && ways < SPLITS_MOST; cut++) {
		if (((unsigned char)text[cut] & 0xc0) == 0x80)
			continue; /* inside a character */
		memcpy(half[0], text, cut);
		half[0][cut] = 0;
		memcpy(half[1], text + cut, n - cut + 1);
		const json_t *a = json_object_get(vocab, half[0]),
			     *b = json_object_get(vocab, half[1]);
		if (a && b)
			way[ways++] = (struct way){ cut, (size_t)json_integer_value(a),
						    (size_t)json_integer_value(b) };
	}
	qsort(way, ways, sizeof *way, by_halves);
	for (size_t i = 0; i < ways; i++)
		if (json_array_append_new(
			    merges, json_pack("[s%, s]", text, way[i].cut, text + way[i].cut)) < 0)
			return err_nomem(e, n, "the merges");
	return 0;
}

static int merges_of_scores(const struct source *s, const json_t *vocab, json_t *merges,
			    struct err *e)
{
	const json_t *scores = json_object_get(s->kv, KEY "scores");
	size_t n = json_array_size(s->tokens), k = 0;
	struct scored *v = mem_array(n ? n : 1, sizeof *v);
	int rc = 0;
	if (!v)
		return err_nomem(e, n * sizeof *v, "the scores");
	for (size_t i = 0; i < n; i++)
		if (!is_added(s, i) && type_of(s, i) != TYPE_BYTE)
			v[k++] = (struct scored){ json_number_value(json_array_get(scores, i)), i };
	qsort(v, k, sizeof *v, by_score);
	for (size_t i = 0; i < k && rc >= 0; i++) {
		char empty[32];
		rc = add_ways(vocab, text_of(s, v[i].id, empty), merges, e);
	}
	mem_free(v);
	return rc;
}

/* ---- the parts ---- */

static json_t *split(const char *pattern)
{
	return json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pattern,
			 "behavior", "Isolated", "invert", 0);
}

static json_t *byte_level(bool regex)
{
	return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
			 "trim_offsets", 1, "use_regex", regex);
}

static json_t *pre_tokenizer(const struct source *s)
{
	if (s->spm)
		return json_null();
	const char *const *p = s->pre->pattern;
	size_t n = 0;
	while (n < ARRAY_LEN(s->pre->pattern) && p[n])
		n++;
	/* ByteLevel has GPT-2's pattern built in */
	bool last = !strcmp(p[n - 1], token_gpt2_pattern);
	json_t *list = json_array();
	for (size_t i = 0; i < n - last; i++)
		if (!strcmp(p[i], "\\p{N}"))
			json_array_append_new(list, json_pack("{s:s,s:b}", "type", "Digits",
							      "individual_digits", 1));
		else
			json_array_append_new(list, split(p[i]));
	json_array_append_new(list, byte_level(last));
	if (json_array_size(list) > 1)
		return json_pack("{s:s,s:o}", "type", "Sequence", "pretokenizers", list);
	json_decref(list);
	return byte_level(last);
}

static json_t *normalizer(const struct source *s)
{
	if (!s->spm)
		return s->pre->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
	json_t *list = json_array();
	if (s->prefix)
		json_array_append_new(list,
				      json_pack("{s:s,s:s}", "type", "Prepend", "prepend", mark));
	json_array_append_new(list, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern",
					      "String", " ", "content", mark));
	return json_pack("{s:s,s:o}", "type", "Sequence", "normalizers", list);
}

static json_t *decoder(const struct source *s)
{
	if (!s->spm)
		return byte_level(true);
	json_t *list = json_array();
	json_array_append_new(list, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern",
					      "String", mark, "content", " "));
	json_array_append_new(list, json_pack("{s:s}", "type", "ByteFallback"));
	json_array_append_new(list, json_pack("{s:s}", "type", "Fuse"));
	if (s->prefix)
		json_array_append_new(list, json_pack("{s:s,s:s,s:i,s:i}", "type", "Strip",
						      "content", " ", "start", 1, "stop", 0));
	return json_pack("{s:s,s:o}", "type", "Sequence", "decoders", list);
}

static void add_special(json_t *list, json_t *specials, const char *text, size_t id)
{
	json_array_append_new(list,
			      json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", text, "type_id", 0));
	json_object_set_new(
		specials, text,
		json_pack("{s:s,s:[I],s:[s]}", "id", text, "ids", (json_int_t)id, "tokens", text));
}

static json_t *post_processor(const struct source *s)
{
	char room[2][32];
	size_t id[2] = { 0, 0 };
	const char *bos = flag(s, KEY "add_bos_token", s->spm || s->pre->add_bos)
				  ? special(s, KEY "bos_token_id", &id[0], room[0])
				  : NULL,
		   *eos = flag(s, KEY "add_eos_token", false)
				  ? special(s, KEY "eos_token_id", &id[1], room[1])
				  : NULL;
	if (!bos && !eos)
		return s->spm ? json_null() : byte_level(true);
	json_t *single = json_array(), *pair = json_array(), *specials = json_object();
	for (int k = 0; k < 2; k++) {
		json_t *list = k ? pair : single;
		for (int text = 0; text <= k; text++) {
			if (bos)
				add_special(list, specials, bos, id[0]);
			json_array_append_new(list, json_pack("{s:{s:s,s:i}}", "Sequence", "id",
							      text ? "B" : "A", "type_id", text));
			if (eos)
				add_special(list, specials, eos, id[1]);
		}
	}
	return json_pack("{s:s,s:o,s:o,s:o}", "type", "TemplateProcessing", "single", single,
			 "pair", pair, "special_tokens", specials);
}

static int make_model(const struct source *s, json_t **model_p, struct err *e)
{
	json_t *vocab = vocabulary(s), *merges = json_array();
	size_t id;
	char room[32];
	const char *unk = s->spm ? special(s, KEY "unknown_token_id", &id, room) : NULL;
	int rc = 0;
	if (s->spm && !s->flat)
		rc = merges_of_scores(s, vocab, merges, e);
	else if (json_array_extend(merges, json_object_get(s->kv, KEY "merges")) < 0)
		rc = err_set(e, ERR_INPUT, "%s: the tokenizer has no merges", s->where);
	if (rc < 0) {
		json_decref(vocab);
		json_decref(merges);
		return rc;
	}
	*model_p = json_pack("{s:s,s:n,s:s?,s:n,s:n,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout",
			     "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix",
			     "fuse_unk", s->spm, "byte_fallback", s->spm, "ignore_merges",
			     !s->spm && s->pre->ignore_merges, "vocab", vocab, "merges", merges);
	return *model_p ? 0 : err_nomem(e, 4096, "tokenizer.json");
}

static json_t *make_config(const struct source *s, const char *chat_template)
{
	static const char *const names[][2] = { { "bos_token", KEY "bos_token_id" },
						{ "eos_token", KEY "eos_token_id" },
						{ "unk_token", KEY "unknown_token_id" },
						{ "pad_token", KEY "padding_token_id" } };
	json_t *o = json_pack("{s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
			      "clean_up_tokenization_spaces", 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t id;
		char room[32];
		const char *text = special(s, names[i][1], &id, room);
		if (text)
			json_object_set_new(o, names[i][0], json_string(text));
	}
	if (chat_template)
		json_object_set_new(o, "chat_template", json_string(chat_template));
	return o;
}

/* Whether all scores are the same, or there are none. */
static bool is_flat(const json_t *scores)
{
	double first = json_number_value(json_array_get(scores, 0));
	const json_t *v;
	size_t i;
	json_array_foreach((json_t *)scores, i, v) if (json_number_value(v) != first) return false;
	return true;
}

int tokenizer_gguf_to_json(const json_t *kv, const char *chat_template, const char *where,
			   json_t **doc_p, json_t **config_p, struct err *e)
{
	struct source s = { .kv = kv,
			    .tokens = json_object_get(kv, KEY "tokens"),
			    .types = json_object_get(kv, KEY "token_type"),
			    .where = where };
	struct tokenizer *t;
	json_t *model;
	/* everything that is refused when reading is refused here */
	TRY(tokenizer_from_gguf(kv, where, &t, e));
	s.spm = t->kind == &tokenizer_kind_spm;
	tokenizer_free(t);
	const bool gemma4 = token_is_gemma4(kv);
	s.prefix = flag(&s, KEY "add_space_prefix", !gemma4);
	s.flat = gemma4 || is_flat(json_object_get(kv, KEY "scores"));
	if (!s.spm)
		TRY(token_pre_find(kv, where, &s.pre, e));
	TRY(make_model(&s, &model, e));
	json_t *doc =
		json_pack("{s:s,s:n,s:n,s:o,s:o,s:o,s:o,s:o,s:o}", "version", "1.0", "truncation",
			  "padding", "added_tokens", added_tokens(&s), "normalizer", normalizer(&s),
			  "pre_tokenizer", pre_tokenizer(&s), "post_processor", post_processor(&s),
			  "decoder", decoder(&s), "model", model);
	json_t *config = make_config(&s, chat_template);
	if (!doc || !config) {
		json_decref(doc);
		json_decref(config);
		return err_nomem(e, 4096, "tokenizer.json");
	}
	*doc_p = doc;
	*config_p = config;
	return 0;
}
