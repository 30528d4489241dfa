/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_vocab.c - tokenizer.json as the tokenizer.* pairs of a GGUF (llama.cpp:
 * gguf-py/gguf/vocab.py, convert_hf_to_gguf.py).
 *
 * A tokenizer is written only when llama.cpp will give the same ids: a pre-tokenizer without a name
 * in GGUF is an error. */
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"

#include <stdio.h>
#include <string.h>

#define TOKENIZER_MAX (256ull << 20)

enum token_type {
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN,
	TOKEN_CONTROL,
	TOKEN_USER,
	TOKEN_UNUSED,
	TOKEN_BYTE
};

struct token {
	const char *text; /* NULL: no token has this id */
	size_t n;
	int32_t type;
	float score;
};

struct vocab {
	const json_t *doc, *model;
	const char *where;
	struct token *token;
	size_t n;
	bool gemma4; /* merges in place of scores */
	struct arena mem;
};

static int put_token(struct vocab *v, const char *text, size_t n, const json_t *id, int32_t type,
		     struct err *e)
{
	int64_t i = json_integer_value(id);
	if (!json_is_integer(id) || i < 0 || i >= (int64_t)v->n)
		return err_set(e, ERR_INPUT,
			       "%s: the token '%.*s' has an id that the model has no embedding for",
			       v->where, (int)(n < 80 ? n : 80), text);
	v->token[i] = (struct token){ text, n, type, 0 };
	return 0;
}

/* "<0x0A>" */
static bool is_byte(const char *s, size_t n)
{
	return n == 6 && !strncmp(s, "<0x", 3) && s[5] == '>' &&
	       strspn(s + 3, "0123456789ABCDEFabcdef") == 2;
}

/* Special tokens of Gemma 4 that llama.cpp shows, because readers of answers look for them
 * (conversion/gemma.py). */
static bool is_shown(const struct vocab *v, const char *s)
{
	static const char *const shown[] = { "<|channel>",   "<channel|>",       "<|tool_call>",
					     "<tool_call|>", "<|tool_response>", "<tool_response|>",
					     "<|\"|>" };
	bool is = false;
	for (size_t i = 0; v->gemma4 && i < ARRAY_LEN(shown); i++)
		is |= !strcmp(s, shown[i]);
	return is;
}

static int read_tokens(struct vocab *v, bool byte_fallback, struct err *e)
{
	const json_t *words = json_object_get(v->model, "vocab"),
		     *added = json_object_get(v->doc, "added_tokens"), *o;
	const char *unk = json_string_value(json_object_get(v->model, "unk_token")), *key;
	json_t *id;
	size_t i;
	if (!json_is_object(words))
		return err_set(e, ERR_INPUT, "%s: 'model.vocab' must be an object", v->where);
	json_object_foreach((json_t *)words, key, id)
	{
		size_t n = strlen(key);
		int32_t type = byte_fallback && is_byte(key, n) ? TOKEN_BYTE
			       : unk && !strcmp(unk, key)       ? TOKEN_UNKNOWN
								: TOKEN_NORMAL;
		TRY(put_token(v, key, n, id, type, e));
	}
	json_array_foreach((json_t *)added, i, id)
	{
		o = json_object_get(id, "content");
		const char *s = json_string_value(o);
		if (!s)
			return err_set(e, ERR_INPUT, "%s: 'added_tokens[%zu].content' is missing",
				       v->where, i);
		int32_t type = unk && !strcmp(unk, s) ? TOKEN_UNKNOWN
			       : json_is_true(json_object_get(id, "special")) && !is_shown(v, s)
				       ? TOKEN_CONTROL
				       : TOKEN_USER;
		TRY(put_token(v, s, json_string_length(o), json_object_get(id, "id"), type, e));
	}
	return 0;
}

/* Ids that no token has, as the converter names them. */
static int fill_gaps(struct vocab *v, struct err *e)
{
	struct buf b = BUF_INIT;
	for (size_t i = 0; i < v->n; i++) {
		if (v->token[i].text)
			continue;
		buf_reset(&b);
		buf_addf(&b, "[PAD%zu]", i);
		char *s = b.failed ? NULL : arena_strdup(&v->mem, b.p);
		if (!s) {
			buf_release(&b);
			return err_nomem(e, 16, "a token");
		}
		v->token[i] = (struct token){ s, b.n, TOKEN_UNUSED, 0 };
	}
	buf_release(&b);
	return 0;
}

/* A merge is "a b" or ["a", "b"]. */
static bool read_merge(const json_t *m, const char **a_p, size_t *na_p, const char **b_p,
		       size_t *nb_p)
{
	const json_t *a = json_array_get(m, 0), *b = json_array_get(m, 1);
	if (json_is_string(m)) {
		const char *s = json_string_value(m), *space = strchr(s, ' ');
		size_t n = json_string_length(m);
		if (!space || strlen(s) != n)
			return false;
		*a_p = s;
		*na_p = (size_t)(space - s);
		*b_p = space + 1;
		*nb_p = n - *na_p - 1;
	} else {
		if (json_array_size(m) != 2 || !json_is_string(a) || !json_is_string(b))
			return false;
		*a_p = json_string_value(a);
		*na_p = json_string_length(a);
		*b_p = json_string_value(b);
		*nb_p = json_string_length(b);
	}
	return *na_p && *nb_p;
}

static int write_merges(const struct vocab *v, struct gguf_pairs *p, struct err *e)
{
	const json_t *merges = json_object_get(v->model, "merges"), *m;
	const char *a, *b;
	size_t i, na, nb;
	struct buf s = BUF_INIT;
	pairs_array(p, "tokenizer.ggml.merges", GGUF_STR, json_array_size(merges));
	json_array_foreach((json_t *)merges, i, m)
	{
		if (!read_merge(m, &a, &na, &b, &nb) || memchr(a, ' ', na) || memchr(b, ' ', nb)) {
			buf_release(&s);
			return err_set(e, ERR_INPUT,
				       "%s: 'model.merges[%zu]' is not a pair of tokens", v->where,
				       i);
		}
		buf_reset(&s);
		buf_add(&s, a, na);
		buf_addc(&s, ' ');
		buf_add(&s, b, nb);
		pairs_text(p, s.p, s.n);
	}
	int rc = buf_ok(&s, e);
	buf_release(&s);
	return rc;
}

/* The score of a token is the negated rank of the first merge that makes it; tokens that no merge
 * makes come after all of these. */
static int score_merges(struct vocab *v, struct err *e)
{
	const json_t *merges = json_object_get(v->model, "merges"),
		     *words = json_object_get(v->model, "vocab"), *m;
	const char *a, *b;
	size_t i, na, nb, n = json_array_size(merges);
	struct buf s = BUF_INIT;
	for (i = 0; i < v->n; i++)
		v->token[i].score = v->token[i].type == TOKEN_NORMAL ? -(float)(n + 1) : 0;
	json_array_foreach((json_t *)merges, i, m)
	{
		if (!read_merge(m, &a, &na, &b, &nb)) {
			buf_release(&s);
			return err_set(e, ERR_INPUT,
				       "%s: 'model.merges[%zu]' is not a pair of tokens", v->where,
				       i);
		}
		buf_reset(&s);
		buf_add(&s, a, na);
		buf_add(&s, b, nb);
		const json_t *id = s.failed ? NULL : json_object_get(words, s.p);
		if (!id)
			continue;
		struct token *t = &v->token[json_integer_value(id)];
		if (t->type == TOKEN_NORMAL && t->score < -(float)n)
			t->score = -(float)i;
	}
	int rc = buf_ok(&s, e);
	buf_release(&s);
	return rc;
}

/* ---- pre-tokenizers that have a name in llama.cpp ---- */

#define WORDS(letters, others, digits)                                                             \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits "| ?" others     \
	"+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits) WORDS("\\p{L}", "[^\\s\\p{L}\\p{N}]", digits)
/* Seed's, whose file has the two characters themselves. */
#define SEED(ends)                                                                                 \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^" ends "\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "                 \
	"?[^\\s\\p{L}\\p{N}" ends "]+|\\s*[" ends "]+|\\s+(?!\\S)|\\s+"
#define QWEN35 WORDS("[\\p{L}\\p{M}]", "[^\\s\\p{L}\\p{M}\\p{N}]", "\\p{N}")

/* Mistral's Tekken and GPT-4o, which also keeps contractions (Phi-4 mini). */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(behind, digits)                                                                      \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" behind "|[^\\r\\n\\p{L}\\p{N}]?" UPPER        \
	"+" LOWER "*" behind "|" digits                                                            \
	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *type_of(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "type"));
	return s ? s : "";
}

static bool is_bytelevel(const json_t *o, bool regex)
{
	const json_t *r = json_object_get(o, "use_regex");
	return !strcmp(type_of(o), "ByteLevel") &&
	       !json_is_true(json_object_get(o, "add_prefix_space")) &&
	       (r ? json_is_true(r) : true) == regex;
}

/* A text is cut at the matches, and nothing lies between them: these patterns match everything. */
static bool cuts(const json_t *split)
{
	const char *behavior = json_string_value(json_object_get(split, "behavior"));
	bool invert = json_is_true(json_object_get(split, "invert"));
	return !strcmp(type_of(split), "Split") && behavior &&
	       !strcmp(behavior, invert ? "Removed" : "Isolated");
}

/* Most of these names also say whether a word that is a token needs merges; families of llama are
 * always called llama-bpe. */
static const char *pre_name(const json_t *pre, bool ignore_merges, bool llama)
{
	const json_t *list = json_object_get(pre, "pretokenizers"),
		     *first = json_array_get(list, 0), *last = json_array_get(list, 1);
	if (is_bytelevel(pre, true))
		return "gpt-2";
	if (strcmp(type_of(pre), "Sequence") != 0 || json_array_size(list) != 2)
		return NULL;
	if (!strcmp(type_of(first), "Digits") &&
	    json_is_true(json_object_get(first, "individual_digits")) && is_bytelevel(last, true))
		return "smollm";
	const char *pattern =
		json_string_value(json_object_get(json_object_get(first, "pattern"), "Regex"));
	if (!cuts(first) || !pattern || !is_bytelevel(last, false))
		return NULL;
	if (!strcmp(pattern, LLAMA3("\\p{N}{1,3}")))
		return ignore_merges || llama ? "llama-bpe" : "dbrx";
	return !strcmp(pattern, LLAMA3("\\p{N}"))                                   ? "qwen2"
	       : !strcmp(pattern, SEED("\\r\\n")) || !strcmp(pattern, SEED("\r\n")) ? "seed-coder"
	       : !strcmp(pattern, QWEN35)                                           ? "qwen35"
	       : !strcmp(pattern, CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")) ? "gpt-4o"
	       : !strcmp(pattern, CASED("", "\\p{N}")) && ignore_merges                  ? "tekken"
											 : NULL;
}

/* Whether a space is put before the text, by the normalizer (Prepend) or the
 * pre-tokenizer (Metaspace). */
static bool has_space_prefix(const json_t *doc)
{
	const json_t *norm = json_object_get(doc, "normalizer"),
		     *pre = json_object_get(doc, "pre_tokenizer"), *o;
	const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
	size_t i;
	if (!strcmp(type_of(norm), "Prepend"))
		return true;
	json_array_foreach(json_object_get(norm, "normalizers"), i,
			   o) if (!strcmp(type_of(o), "Prepend")) return true;
	if (strcmp(type_of(pre), "Metaspace") != 0)
		return false;
	return scheme ? strcmp(scheme, "never") != 0
		      : !json_is_false(json_object_get(pre, "add_prefix_space"));
}

/* ---- special tokens ---- */

/* Which of BOS and EOS the post-processor adds around a single text. */
static void added_around(const json_t *post, bool *bos_p, bool *eos_p)
{
	const json_t *o;
	size_t i;
	json_array_foreach(json_object_get(post, "processors"), i, o) added_around(o, bos_p, eos_p);
	bool behind = false;
	json_array_foreach(json_object_get(post, "single"), i, o)
	{
		if (json_object_get(o, "Sequence"))
			behind = true;
		else if (json_object_get(o, "SpecialToken"))
			*(behind ? eos_p : bos_p) = true;
	}
}

/* Llama's tokenizer class goes by these two keys and not by the post-processor. */
static void added_by_class(const json_t *config, bool *bos_p, bool *eos_p)
{
	static const char *const classes[] = { "LlamaTokenizer", "LlamaTokenizerFast",
					       "CodeLlamaTokenizer", "CodeLlamaTokenizerFast" };
	const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
	const json_t *bos = json_object_get(config, "add_bos_token"),
		     *eos = json_object_get(config, "add_eos_token");
	bool known = false;
	for (size_t i = 0; class && i < ARRAY_LEN(classes); i++)
		known |= !strcmp(class, classes[i]);
	if (!known || (!bos && !eos))
		return;
	*bos_p = !json_is_false(bos);
	*eos_p = json_is_true(eos);
}

static int64_t token_id(const struct vocab *v, const char *text)
{
	for (size_t i = 0; text && i < v->n; i++)
		if (v->token[i].type != TOKEN_UNUSED && !strcmp(v->token[i].text, text))
			return (int64_t)i;
	return -1;
}

/* From tokenizer_config.json's "bos_token" (text, or an object with "content"), else from
 * config.json's "bos_token_id". */
static void write_special(const struct vocab *v, const struct model_file *base, const char *name,
			  const char *gguf, struct gguf_pairs *p)
{
	char key[64];
	snprintf(key, sizeof key, "%s_token", name);
	const json_t *o = json_object_get(model_file_tokenizer_config(base), key);
	const char *text = json_is_object(o) ? json_string_value(json_object_get(o, "content"))
					     : json_string_value(o);
	int64_t id = token_id(v, text);
	if (id < 0) {
		snprintf(key, sizeof key, "%s_token_id", name);
		o = json_object_get(model_file_config(base), key);
		o = json_is_array(o) ? json_array_get(o, 0) : o;
		id = json_is_integer(o) ? json_integer_value(o) : -1;
	}
	if (id < 0 || id >= (int64_t)v->n)
		return;
	snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", gguf);
	pairs_u32(p, key, (uint32_t)id);
}

static void write_tokens(const struct vocab *v, bool scores, struct gguf_pairs *p)
{
	pairs_array(p, "tokenizer.ggml.tokens", GGUF_STR, v->n);
	for (size_t i = 0; i < v->n; i++)
		pairs_text(p, v->token[i].text, v->token[i].n);
	if (scores) {
		pairs_array(p, "tokenizer.ggml.scores", GGUF_F32, v->n);
		for (size_t i = 0; i < v->n; i++)
			buf_add(&p->b, &v->token[i].score, 4);
	}
	pairs_array(p, "tokenizer.ggml.token_type", GGUF_I32, v->n);
	for (size_t i = 0; i < v->n; i++)
		buf_add(&p->b, &v->token[i].type, 4);
}

static int write_vocab(struct vocab *v, const struct model_file *base, struct gguf_pairs *p,
		       struct err *e)
{
	const char *type = type_of(v->model),
		   *family = json_string_value(
			   json_object_get(model_file_config(base), "model_type")),
		   *pre = pre_name(json_object_get(v->doc, "pre_tokenizer"),
				   json_is_true(json_object_get(v->model, "ignore_merges")),
				   family && !strcmp(family, "llama"));
	bool spm = json_is_true(json_object_get(v->model, "byte_fallback")), bos = false,
	     eos = false;
	if (*type && strcmp(type, "BPE") != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'model.type' is '%s', only BPE can be written into a GGUF",
			       v->where, type);
	if (!spm && !pre)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: this 'pre_tokenizer' has no name in GGUF (known: llama-bpe, "
			       "dbrx, gpt-4o, tekken, qwen2, qwen35, seed-coder, smollm, gpt-2)",
			       v->where);
	v->gemma4 &= spm;
	TRY(read_tokens(v, spm, e));
	TRY(fill_gaps(v, e));
	if (spm && !v->gemma4)
		TRY(score_merges(v, e));
	pairs_str(p, "tokenizer.ggml.model", v->gemma4 ? "gemma4" : spm ? "llama" : "gpt2");
	pairs_str(p, "tokenizer.ggml.pre", v->gemma4 ? "gemma4" : spm ? "default" : pre);
	write_tokens(v, spm && !v->gemma4, p);
	if (!spm || v->gemma4)
		TRY(write_merges(v, p, e));
	write_special(v, base, "bos", "bos", p);
	write_special(v, base, "eos", "eos", p);
	write_special(v, base, "unk", "unknown", p);
	write_special(v, base, "pad", "padding", p);
	added_around(json_object_get(v->doc, "post_processor"), &bos, &eos);
	added_by_class(model_file_tokenizer_config(base), &bos, &eos);
	pairs_bool(p, "tokenizer.ggml.add_bos_token", bos);
	pairs_bool(p, "tokenizer.ggml.add_eos_token", eos);
	pairs_bool(p, "tokenizer.ggml.add_space_prefix", spm && has_space_prefix(v->doc));
	if (model_file_chat_template(base))
		pairs_str(p, "tokenizer.chat_template", model_file_chat_template(base));
	return 0;
}

int gguf_vocab(const struct model_file *base, int64_t vocab, struct gguf_pairs *p, struct err *e)
{
	struct vocab v = { .where = model_file_tokenizer_path(base), .n = (size_t)vocab };
	json_t *doc = NULL;
	if (!v.where) {
		log_warn("%s: has no tokenizer.json, so the GGUF will have no tokenizer",
			 model_file_path(base));
		pairs_str(p, "tokenizer.ggml.model", "none");
		return 0;
	}
	TRY(json_parse_file_in(v.where, TOKENIZER_MAX, JSON_MEMORY_TABLE, &doc, e));
	const char *type =
		json_string_value(json_object_get(model_file_config(base), "model_type"));
	v.gemma4 = type && !strcmp(type, "gemma4_text");
	v.doc = doc;
	v.model = json_object_get(doc, "model");
	v.token = arena_alloc(&v.mem, v.n * sizeof *v.token);
	int rc = v.token ? write_vocab(&v, base, p, e)
			 : err_nomem(e, v.n * sizeof *v.token, "a vocabulary");
	arena_release(&v.mem);
	json_decref(doc);
	return rc;
}
