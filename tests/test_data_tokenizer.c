/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_tokenizer.c - token ids and decoded text against Hugging Face's tokenizers and
 * sentencepiece (scripts/golden/tokenizer.py): every published configuration on about 1,100 lines
 * in many scripts, from tokenizer.json and from GGUF KV pairs. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIR "tests/golden/tokenizer/"

static json_t *lines;

static json_t *load(const char *name, const char *ending)
{
	char path[256];
	struct err e = { 0 };
	json_t *doc = NULL;
	snprintf(path, sizeof path, DIR "%s%s", name, ending);
	if (json_parse_file(path, 0, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	return doc;
}

static int setup(void **state)
{
	(void)state;
	lines = load("lines", ".json");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(lines);
	return 0;
}

static int digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = strchr(digits, c);
	assert_non_null(p);
	return (int)(p - digits);
}

/* Ids up to '|', line feed or the end. */
static const char *unpack(const char *p, struct tokens *t)
{
	struct err e = { 0 };
	t->n = 0;
	for (; *p && *p != '\n' && *p != '|'; p += 2)
		assert_int_equal(tokens_add(t, digit(p[0]) << 6 | digit(p[1]), &e), 0);
	return p;
}

static bool same(const struct tokens *a, const struct tokens *b, size_t skip_a)
{
	return a->n - skip_a == b->n &&
	       (!b->n || !memcmp(a->id + skip_a, b->id, b->n * sizeof *b->id));
}

static void show(const char *name, size_t i, const char *what, const struct tokens *want,
		 const struct tokens *got)
{
	fprintf(stderr, "%s: line %zu, %s\n  expected", name, i, what);
	for (size_t k = 0; k < want->n; k++)
		fprintf(stderr, " %d", (int)want->id[k]);
	fprintf(stderr, "\n  got     ");
	for (size_t k = 0; k < got->n; k++)
		fprintf(stderr, " %d", (int)got->id[k]);
	fprintf(stderr, "\n");
}

/* All lines of a configuration; returns how many differ. */
static int compare(const char *name, const struct tokenizer *t, bool gaps)
{
	struct err e = { 0 };
	struct buf file = BUF_INIT, text = BUF_INIT;
	struct tokens want = { 0 }, plain = { 0 }, got = { 0 }, inner = { 0 };
	json_t *texts = load(name, ".text.json"), *line;
	char path[256], key[32];
	int bad = 0, bad_text = 0, compared = 0;
	snprintf(path, sizeof path, DIR "%s.ids", name);
	assert_int_equal(buf_read_file(&file, path, 0, &e), 0);
	const char *p = file.p;
	size_t i;
	json_array_foreach(lines, i, line)
	{
		const char *s = json_string_value(line);
		size_t n = json_string_length(line);
		p = unpack(p, &want);
		bool differ = *p == '|';
		if (differ)
			p = unpack(p + 1, &plain);
		assert_int_equal(*p++, '\n');
		if (gaps && !want.n)
			continue;
		compared++;
		got.n = inner.n = 0;
		assert_int_equal(tokenizer_encode(t, s, n, true, true, &got, &e), 0);
		assert_int_equal(tokenizer_encode(t, s, n, false, true, &inner, &e), 0);
		if (!same(&want, &got, 0)) {
			if (bad++ < 5)
				show(name, i, "special tokens recognised", &want, &got);
			continue;
		}
		size_t head = want.n - inner.n;
		assert_true(head <= 1 && same(&want, &inner, head));
		got.n = 0;
		assert_int_equal(tokenizer_encode(t, s, n, false, false, &got, &e), 0);
		if (differ ? !same(&plain, &got, 0) : !same(&inner, &got, 0)) {
			if (bad++ < 5)
				show(name, i, "special tokens not recognised",
				     differ ? &plain : &inner, &got);
			continue;
		}
		snprintf(key, sizeof key, "%zu", i);
		const json_t *expect = json_object_get(texts, key);
		const char *x = expect ? json_string_value(expect) : s;
		size_t nx = expect ? json_string_length(expect) : n;
		buf_reset(&text);
		assert_int_equal(tokenizer_decode(t, inner.id, inner.n, false, &text, &e), 0);
		/* Bytes that are no UTF-8 come out unchanged, where the references write U+FFFD. */
		if ((text.n != nx || memcmp(text.p, x, nx)) && !memmem(x, nx, "\xef\xbf\xbd", 3) &&
		    bad_text++ < 5)
			fprintf(stderr, "%s: line %zu decodes to '%.*s', not '%.*s'\n", name, i,
				(int)text.n, text.p, (int)nx, x);
	}
	assert_int_equal(*p, 0);
	printf("  %s: %d lines, %d with other ids, %d with other text\n", name, compared, bad,
	       bad_text);
	json_decref(texts);
	buf_release(&file);
	buf_release(&text);
	tokens_release(&want);
	tokens_release(&plain);
	tokens_release(&got);
	tokens_release(&inner);
	assert_true(compared > 800);
	return bad + bad_text;
}

static const char *const names[] = { "gpt2",    "smollm2", "llama3", "qwen2",   "flags",
				     "removed", "tekken",  "llama2", "mistral", "metaspace" };

static void test_json(void **state)
{
	(void)state;
	int bad = 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		char path[256];
		snprintf(path, sizeof path, DIR "%s.json", names[i]);
		if (tokenizer_from_file(path, NULL, &t, &e) < 0)
			fail_msg("%s", e.msg);
		bad += compare(names[i], t, false);
		tokenizer_free(t);
	}
	assert_int_equal(bad, 0);
}

/* The KV pairs written as tokenizer.json give the same ids on every line. */
static int written(const char *name, const json_t *kv, bool gaps)
{
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *doc = NULL, *config = NULL;
	if (tokenizer_gguf_to_json(kv, "{{ messages }}", name, &doc, &config, &e) < 0 ||
	    tokenizer_from_json(doc, config, name, &t, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(json_string_value(json_object_get(config, "chat_template")),
			    "{{ messages }}");
	/* `tokenizers` takes the id of an added token from the vocabulary, not from its "id" */
	const json_t *vocab = json_object_get(json_object_get(doc, "model"), "vocab"), *v;
	size_t i;
	json_array_foreach(json_object_get(doc, "added_tokens"), i, v)
	{
		const char *text = json_string_value(json_object_get(v, "content"));
		if (!json_equal(json_object_get(vocab, text), json_object_get(v, "id")))
			fail_msg("%s: '%s' has another id in the vocabulary, or none", name, text);
	}
	if (getenv("HS_KEEP")) { /* to compare it with other tokenizers by hand */
		char path[512];
		snprintf(path, sizeof path, "%s/%s.json", getenv("HS_KEEP"), name);
		assert_int_equal(json_dump_file(doc, path, 0), 0);
	}
	int bad = compare(name, t, gaps);
	json_decref(doc);
	json_decref(config);
	tokenizer_free(t);
	return bad;
}

static void test_gguf_spm(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *kv = load("spm_gguf", ".json");
	if (tokenizer_from_gguf(kv, "spm_gguf", &t, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(compare("spm_gguf", t, true), 0);
	assert_int_equal(written("spm_gguf", kv, true), 0);
	json_decref(kv);
	tokenizer_free(t);
}

/* What convert_hf_to_gguf.py writes for a tokenizer.json. */
static json_t *to_gguf(const char *name, const char *pre)
{
	json_t *doc = load(name, ".json"), *model = json_object_get(doc, "model"),
	       *added = json_object_get(doc, "added_tokens");
	json_t *tokens = json_array(), *types = json_array(), *v, *kv = json_object();
	const char *key;
	size_t i, n = 0;
	json_object_foreach(json_object_get(model, "vocab"), key, v) n =
		(size_t)json_integer_value(v) >= n ? (size_t)json_integer_value(v) + 1 : n;
	json_array_foreach(added, i, v)
	{
		size_t id = (size_t)json_integer_value(json_object_get(v, "id"));
		n = id >= n ? id + 1 : n;
	}
	for (i = 0; i < n; i++) {
		json_array_append_new(tokens, json_string(""));
		json_array_append_new(types, json_integer(1));
	}
	json_object_foreach(json_object_get(model, "vocab"), key, v)
		json_array_set_new(tokens, (size_t)json_integer_value(v), json_string(key));
	json_array_foreach(added, i, v)
	{
		size_t id = (size_t)json_integer_value(json_object_get(v, "id"));
		bool special = json_is_true(json_object_get(v, "special"));
		json_array_set(tokens, id, json_object_get(v, "content"));
		json_array_set_new(types, id, json_integer(special ? 3 : 4));
		const char *text = json_string_value(json_object_get(v, "content"));
		if (!strcmp(text, "<|begin_of_text|>") || !strcmp(text, "<s>"))
			json_object_set_new(kv, "tokenizer.ggml.bos_token_id",
					    json_integer((json_int_t)id));
	}
	json_object_set_new(kv, "tokenizer.ggml.model", json_string("gpt2"));
	json_object_set_new(kv, "tokenizer.ggml.pre", json_string(pre));
	json_object_set_new(kv, "tokenizer.ggml.tokens", tokens);
	json_object_set_new(kv, "tokenizer.ggml.token_type", types);
	json_object_set(kv, "tokenizer.ggml.merges", json_object_get(model, "merges"));
	json_decref(doc);
	return kv;
}

static void test_gguf_bytebpe(void **state)
{
	(void)state;
	static const char *const rows[][2] = { { "gpt2", "gpt-2" },
					       { "smollm2", "smollm" },
					       { "llama3", "llama-bpe" },
					       { "qwen2", "qwen2" },
					       { "tekken", "tekken" } };
	int bad = 0;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		json_t *kv = to_gguf(rows[i][0], rows[i][1]);
		if (!strcmp(rows[i][0], "tekken"))
			json_object_set_new(kv, "tokenizer.ggml.add_bos_token", json_false());
		if (tokenizer_from_gguf(kv, rows[i][0], &t, &e) < 0)
			fail_msg("%s", e.msg);
		bad += compare(rows[i][0], t, false);
		tokenizer_free(t);
		bad += written(rows[i][0], kv, false);
		json_object_set_new(kv, "tokenizer.ggml.pre", json_string("llama"));
		assert_int_equal(tokenizer_from_gguf(kv, "x.gguf", &t, &e), ERR_UNSUPPORTED);
		assert_non_null(strstr(e.msg, "'llama'"));
		json_decref(kv);
	}
	assert_int_equal(bad, 0);
}

/* A GGUF of Gemma 4 has merges, and scores that mean nothing. */
static void test_gguf_gemma4(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *kv = to_gguf("llama2", "gemma4"), *scores = json_array();
	for (size_t i = json_array_size(json_object_get(kv, "tokenizer.ggml.tokens")); i-- > 0;)
		json_array_append_new(scores, json_real(i % 7));
	json_object_set_new(kv, "tokenizer.ggml.scores", scores);
	json_object_set_new(kv, "tokenizer.ggml.model", json_string("gemma4"));
	json_object_set_new(kv, "tokenizer.ggml.unknown_token_id", json_integer(0));
	json_object_set_new(kv, "tokenizer.ggml.add_space_prefix", json_true());
	if (tokenizer_from_gguf(kv, "gemma4", &t, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(compare("llama2", t, false), 0);
	assert_int_equal(written("llama2", kv, false), 0);
	tokenizer_free(t);
	json_object_set_new(kv, "tokenizer.ggml.model",
			    json_string("llama")); /* the scores count */
	if (tokenizer_from_gguf(kv, "llama", &t, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_not_equal(compare("llama2", t, false), 0);
	tokenizer_free(t);
	json_decref(kv);
}

/* The ids of a text in a tokenizer.json, as `tokenizers` 0.23 gives them. */
static void gives(const char *doc, const char *text, const char *want)
{
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	struct tokens ids = { 0 };
	struct buf got = BUF_INIT;
	json_t *j = json_loads(doc, 0, NULL);
	if (!j || tokenizer_from_json(j, NULL, "test", &t, &e) < 0 ||
	    tokenizer_encode(t, text, strlen(text), false, false, &ids, &e) < 0)
		fail_msg("%s: %s", doc, e.msg);
	for (size_t i = 0; i < ids.n; i++)
		buf_addf(&got, "%d ", (int)ids.id[i]);
	if (strcmp(got.p, want))
		fail_msg("%s: '%s' gives %s, not %s", doc, text, got.p, want);
	tokens_release(&ids);
	tokenizer_free(t);
	buf_release(&got);
	json_decref(j);
}

/* Each piece is a token. */
static void pieces(const char *behavior, const char *invert, const char *regex, const char *text,
		   const char *want)
{
	char doc[1000];
	snprintf(doc, sizeof doc,
		 "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"merges\":[],\"vocab\":{"
		 "\"a\":0,\"-\":1,\"a-\":2,\"-a\":3,\"--\":4,\"aa\":5,\"aa-\":6,\"-aa\":7,"
		 "\"1\":8,\"1111\":9}},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":"
		 "[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"%s\","
		 "\"invert\":%s},{\"type\":\"ByteLevel\",\"use_regex\":false,"
		 "\"add_prefix_space\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}",
		 regex, behavior, invert);
	gives(doc, text, want);
}

/* Qwen3.5 keeps marks with letters, where Qwen2 does not. */
static void test_pre_marks(void **state)
{
	(void)state;
	static const char pattern[] =
		"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
		"?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
	/* x and a mark: Qwen2 begins a piece with the mark, which ends the merge into "xy" */
	static const char text[] = "x\xcc\x81y \xe0\xa4\x95\xe0\xa4\xbf 12";
	struct err e = { 0 };
	struct tokenizer *t[3] = { NULL };
	struct tokens ids[3] = { { 0 } };
	json_t *kv = to_gguf("qwen2", "qwen35"), *doc = load("qwen2", ".json"),
	       *merges = json_pack("[s,s,s]", "x \xc3\x8c", "x\xc3\x8c \xc4\xa3",
				   "x\xc3\x8c\xc4\xa3 y"),
	       *vocab = json_object_get(json_object_get(doc, "model"), "vocab"),
	       *tokens = json_object_get(kv, "tokenizer.ggml.tokens");
	static const char *const more[] = { "x\xc3\x8c", "x\xc3\x8c\xc4\xa3",
					    "x\xc3\x8c\xc4\xa3y" };
	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		json_object_set_new(vocab, more[i],
				    json_integer((json_int_t)json_array_size(tokens)));
		json_array_append_new(tokens, json_string(more[i]));
		json_array_append_new(json_object_get(kv, "tokenizer.ggml.token_type"),
				      json_integer(1));
	}
	json_object_set(kv, "tokenizer.ggml.merges", merges);
	json_object_set(json_object_get(doc, "model"), "merges", merges);
	json_t *split = json_array_get(
		json_object_get(json_object_get(doc, "pre_tokenizer"), "pretokenizers"), 0);
	json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string(pattern));
	if (tokenizer_from_gguf(kv, "a", &t[0], &e) < 0 ||
	    tokenizer_from_json(doc, NULL, "b", &t[1], &e) < 0)
		fail_msg("%s", e.msg);
	json_object_set_new(kv, "tokenizer.ggml.pre", json_string("qwen2"));
	assert_int_equal(tokenizer_from_gguf(kv, "c", &t[2], &e), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			tokenizer_encode(t[i], text, strlen(text), false, false, &ids[i], &e), 0);
	assert_int_equal(ids[0].n, ids[1].n);
	assert_memory_equal(ids[0].id, ids[1].id, ids[0].n * sizeof *ids[0].id);
	assert_int_not_equal(ids[0].n, ids[2].n);
	for (int i = 0; i < 3; i++) {
		tokens_release(&ids[i]);
		tokenizer_free(t[i]);
	}
	json_decref(kv), json_decref(doc), json_decref(merges);
}

/* EXAONE 4's and OLMoE's are that of GPT-2 (llama.cpp: src/llama-vocab.cpp). */
static void test_pre_names(void **state)
{
	(void)state;
	static const char *const pre[] = { "gpt-2", "exaone4", "olmo" };
	for (size_t i = 0; i < ARRAY_LEN(pre); i++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		struct tokens ids = { 0 };
		json_t *kv =
			json_pack("{s:s,s:[s,s,s],s:s,s:[s]}", "tokenizer.ggml.model", "gpt2",
				  "tokenizer.ggml.tokens", "1", "2", "12", "tokenizer.ggml.pre",
				  pre[i], "tokenizer.ggml.merges", "1 2");
		if (tokenizer_from_gguf(kv, pre[i], &t, &e) < 0 ||
		    tokenizer_encode(t, "1212", 4, false, false, &ids, &e) < 0)
			fail_msg("%s", e.msg);
		assert_true(ids.n == 2 && ids.id[0] == 2 && ids.id[1] == 2);
		tokens_release(&ids);
		tokenizer_free(t);
		json_decref(kv);
	}
}

static void test_pieces(void **state)
{
	(void)state;
	const char text[] = "-a--aa-";
	pieces("Isolated", "true", "-", text, "1 0 1 1 5 1 ");
	pieces("Removed", "false", "-", text, "0 5 ");
	pieces("Removed", "true", "-", text, "1 1 1 1 ");
	pieces("MergedWithPrevious", "false", "-", text, "1 2 1 6 ");
	pieces("MergedWithPrevious", "true", "-", text, "3 1 7 1 ");
	pieces("MergedWithNext", "false", "-", text, "3 1 7 1 ");
	pieces("MergedWithNext", "true", "-", text, "1 2 1 6 ");
	pieces("Contiguous", "false", "-", text, "1 0 4 5 1 ");
	pieces("Contiguous", "true", "-", text, "1 0 4 5 1 ");
	/* Ruby's syntax: one to three numbers, any times; PCRE2's is possessive */
	pieces("Isolated", "false", "\\\\p{N}{1,3}+", "1111", "9 ");
	pieces("Isolated", "false", "a|[^-a]{2}+|-", "1111a", "9 0 ");
	/* what letters, words and punctuation are for Oniguruma */
	pieces("Removed", "false", "\\\\wa", "\u2163a-\u24d0a-\u00bda-", "1 1 1 ");
	pieces("Removed", "false", "1\\\\b", "1\u0301-1--1", "8 1 4 ");
	pieces("Removed", "false", "[[:punct:]]a", "\u20aca-", "1 ");
	/* Gemma's: the spaces are marks before it is split at spaces */
	gives("{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"a\":1,"
	      "\"\xe2\x96\x81\":2,\"\xe2\x96\x81\x61\":3},\"merges\":[[\"\xe2\x96\x81\",\"a\"]]},"
	      "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
	      "\"content\":\"\xe2\x96\x81\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
	      "\"String\":\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false},"
	      "\"decoder\":{\"type\":\"Fuse\"}}",
	      "a a ", "1 3 2 ");
	/* a letter that is only an added token, where that is not recognised */
	gives("{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,"
	      "\"<0x41>\":1,\"b\":2},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"},"
	      "\"added_tokens\":[{\"id\":3,\"content\":\"A\",\"single_word\":true,"
	      "\"normalized\":false}]}",
	      "Ab A", "1 2 3 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),        cmocka_unit_test(test_gguf_spm),
		cmocka_unit_test(test_gguf_gemma4), cmocka_unit_test(test_gguf_bytebpe),
		cmocka_unit_test(test_pieces),      cmocka_unit_test(test_pre_names),
		cmocka_unit_test(test_pre_marks),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
