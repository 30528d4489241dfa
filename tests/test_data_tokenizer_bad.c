/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_tokenizer_bad.c - tokenizers that are broken or hostile, bytes that are not UTF-8,
 * memory that runs out, many threads. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DIR "tests/golden/tokenizer/"

static json_t *parse(const char *text)
{
	struct err e = { 0 };
	json_t *doc = NULL;
	if (json_parse_text(text, strlen(text), "test", &doc, &e) < 0)
		fail_msg("%s in %s", e.msg, text);
	return doc;
}

static json_t *load(const char *path)
{
	struct err e = { 0 };
	json_t *doc = NULL;
	if (json_parse_file(path, 0, &doc, &e) < 0)
		fail_msg("%s", e.msg);
	return doc;
}

#define BL                                                                                         \
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{"      \
	"\"type\":\"ByteLevel\"}"
#define BPE(vocab, merges)                                                                         \
	"\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define SPM                                                                                        \
	"\"normalizer\":null,\"pre_tokenizer\":null,\"model\":{\"type\":\"BPE\",\"byte_"           \
	"fallback\":true,\"vocab\":{\"a\":0},"                                                     \
	"\"merges\":[]}"
#define GGUF "\"tokenizer.ggml.model\":"

static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *doc, *says;
		int code;
	} cases[] = {
		{ "[]", "no 'model'", ERR_INPUT },
		{ "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "'Unigram'", ERR_UNSUPPORTED },
		{ "{\"model\":{\"type\":\"WordPiece\"}," BL "}", "'WordPiece'", ERR_UNSUPPORTED },
		{ "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1}," BL "}", "dropout",
		  ERR_UNSUPPORTED },
		{ "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}," BL "}",
		  "end_of_word_suffix", ERR_UNSUPPORTED },
		{ "{" BPE("", "") "}", "neither byte-level", ERR_UNSUPPORTED },
		{ "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}," BL "}",
		  "'model.vocab'", ERR_INPUT },
		{ "{" BPE("", "") "," BL "}", "empty", ERR_INPUT },
		{ "{" BPE("\"a\":-1", "") "," BL "}", "'a'", ERR_INPUT },
		{ "{" BPE("\"a\":1048576", "") "," BL "}", "'a'", ERR_INPUT },
		{ "{" BPE("\"a\":9223372036854775807", "") "," BL "}", "'a'", ERR_INPUT },
		{ "{" BPE("\"a\":\"0\"", "") "," BL "}", "'a'", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"b\":0", "") "," BL "}", "same id 0", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"b\":1", "\"a b\"") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"ab\":1", "\"a b\"") "," BL "}", "'b'", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"ab\":1", "\"ab\"") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"ab\":1", "\"a \"") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0,\"ab\":1", "\"a b c\"") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0", "[\"a\"]") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0", "7") "," BL "}", "merge 0", ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL ",\"added_tokens\":{}}", "'added_tokens'",
		  ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL ",\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]}",
		  "same id 0", ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL ",\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]}",
		  "two ids", ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL
					 ",\"added_tokens\":[{\"id\":1048576,\"content\":\"b\"}]}",
		  "'id'", ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL ",\"added_tokens\":[{\"content\":\"b\"}]}", "'id'",
		  ERR_INPUT },
		{ "{" BPE("\"a\":0", "") "," BL ",\"normalizer\":{\"type\":\"Lowercase\"}}",
		  "'Lowercase'", ERR_UNSUPPORTED },
		{ "{" BPE("\"a\":0", "") "," BL
					 ",\"post_processor\":{\"type\":\"BertProcessing\"}}",
		  "'BertProcessing'", ERR_UNSUPPORTED },
		{ "{" BPE("\"a\":0",
			  "") "," BL
			      ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
			      "\"SpecialToken\":{\"id\":\"x\"}}]}}",
		  "'x'", ERR_INPUT },
		{ "{" BPE("\"a\":0",
			  "") ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
			      "\"type\":\"BertPreTokenizer\"},"
			      "{\"type\":\"ByteLevel\"}]},\"decoder\":{\"type\":\"ByteLevel\"}}",
		  "'BertPreTokenizer'", ERR_UNSUPPORTED },
		{ "{" BPE("\"a\":0", "") ",\"pre_tokenizer\":{\"type\":\"Sequence\","
					 "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
					 "\"Isolated\","
					 "\"pattern\":{\"Regex\":\"a(\"}},{\"type\":\"ByteLevel\"}]"
					 "},\"decoder\":{\"type\":\"ByteLevel\"}}",
		  "byte 2", ERR_INPUT },
		{ "{" BPE("\"a\":0", "") ",\"pre_tokenizer\":{\"type\":\"Sequence\","
					 "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
					 "\"Merged\","
					 "\"pattern\":{\"Regex\":\"a\"}},{\"type\":\"ByteLevel\"}]}"
					 ",\"decoder\":{\"type\":\"ByteLevel\"}}",
		  "'Merged'", ERR_UNSUPPORTED },
		{ "{" BPE("\"a\":0", "") ",\"pre_tokenizer\":{\"type\":\"Sequence\","
					 "\"pretokenizers\":[{\"type\":\"ByteLevel\"},{"
					 "\"type\":\"Digits\"}]},"
					 "\"decoder\":{\"type\":\"ByteLevel\"}}",
		  "('Digits') behind ByteLevel", ERR_UNSUPPORTED },
		{ "{" BPE("\"a\":0", "") ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{"
					 "\"type\":\"WordPiece\"}}",
		  "'WordPiece'", ERR_UNSUPPORTED },
		{ "{" SPM ",\"decoder\":{\"type\":\"CTC\"}}", "'CTC'", ERR_UNSUPPORTED },
		{ "{" SPM "}", "'type'", ERR_INPUT },
		{ "{" GGUF "\"bert\"}", "'bert'", ERR_UNSUPPORTED },
		{ "{" GGUF "\"gpt2\"}", "tokens", ERR_INPUT },
		{ "{" GGUF "\"gpt2\",\"tokenizer.ggml.tokens\":[]}", "empty", ERR_INPUT },
		{ "{" GGUF "\"gpt2\",\"tokenizer.ggml.tokens\":[1]}", "token 0", ERR_INPUT },
		{ "{" GGUF "\"gpt2\",\"tokenizer.ggml.tokens\":[\"a\",\"a\"]}", "two ids",
		  ERR_INPUT },
		{ "{" GGUF
		  "\"gpt2\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.token_type\":[]}",
		  "types", ERR_INPUT },
		{ "{" GGUF
		  "\"gpt2\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.pre\":\"smol\"}",
		  "'smol'", ERR_UNSUPPORTED },
		{ "{" GGUF
		  "\"gpt2\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.pre\":\"gpt-2\"}",
		  "'merges'", ERR_INPUT },
		{ "{" GGUF "\"gpt2\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.pre\":"
		  "\"gpt-2\",\"tokenizer.ggml.merges\":[],"
		  "\"tokenizer.ggml.add_bos_token\":true}",
		  "add_bos_token", ERR_INPUT },
		{ "{" GGUF "\"llama\",\"tokenizer.ggml.tokens\":[\"a\"]}",
		  "neither scores nor merges", ERR_INPUT },
		{ "{" GGUF
		  "\"llama\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.scores\":[]}",
		  "scores", ERR_INPUT },
		{ "{" GGUF
		  "\"llama\",\"tokenizer.ggml.tokens\":[\"a\"],\"tokenizer.ggml.scores\":[\"x\"]}",
		  "token 0", ERR_INPUT },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		json_t *doc = parse(cases[i].doc);
		int rc = json_object_get(doc, "tokenizer.ggml.model")
				 ? tokenizer_from_gguf(doc, "bad.gguf", &t, &e)
				 : tokenizer_from_json(doc, NULL, "bad.json", &t, &e);
		if (rc != cases[i].code || e.code != rc || t || !strstr(e.msg, cases[i].says) ||
		    strncmp(e.msg, "bad.", 4) || strchr(e.msg, '\n'))
			fail_msg("%s gives %d: %s", cases[i].doc, rc, e.msg);
		json_decref(doc);
	}
}

/* A vocabulary with one token for each number, and too many tokens. */
static void test_too_many(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *tokens = json_array(), *kv = json_pack("{ss}", "tokenizer.ggml.model", "gpt2");
	char text[16];
	for (int i = 0; i <= 1 << 20; i++) {
		snprintf(text, sizeof text, "%d", i);
		json_array_append_new(tokens, json_string(text));
	}
	json_object_set_new(kv, "tokenizer.ggml.tokens", tokens);
	assert_int_equal(tokenizer_from_gguf(kv, "bad.gguf", &t, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "1048577"));
	json_decref(kv);
}

static struct tokenizer *with_pattern(const char *pattern)
{
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	json_t *doc = load(DIR "llama3.json");
	json_t *stages = json_object_get(json_object_get(doc, "pre_tokenizer"), "pretokenizers");
	json_object_set_new(json_object_get(json_array_get(stages, 0), "pattern"), "Regex",
			    json_string(pattern));
	if (tokenizer_from_json(doc, NULL, "test", &t, &e) < 0)
		fail_msg("%s", e.msg);
	json_decref(doc);
	return t;
}

/* Patterns that would run for days end in an error. Harmless patterns work, also those that no
 * published model uses. */
static void test_patterns(void **state)
{
	(void)state;
	enum { N = 300000 };
	static const char *const slow[] = { "a*[bd]", "(?:a*[bd]|a)*[ce]", "(?=.*[bd])a",
					    "(a+a+)+[bd]" };
	char *text = mem_alloc(N);
	memset(text, 'a', N);
	struct err e = { 0 };
	struct tokens ids = { 0 };
	for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
		struct tokenizer *t = with_pattern(slow[i]);
		int rc = tokenizer_encode(t, text, N, false, false, &ids, &e);
		if (rc != ERR_INPUT)
			fail_msg("%s gives %d", slow[i], rc);
		assert_int_equal(ids.n, 0);
		tokenizer_free(t);
	}
	static const char *const fine[] = { "",         ".*?",         "\\s|\\S",
					    "(?<=a)a",  "[^\\s]+\\s?", "a\\Ka",
					    "\\u0061+", "\\h\\w\\W" };
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		struct tokenizer *t = with_pattern(fine[i]);
		struct buf back = BUF_INIT;
		ids.n = 0;
		if (tokenizer_encode(t, text, N, false, false, &ids, &e) < 0)
			fail_msg("%s: %s", fine[i], e.msg);
		assert_int_equal(tokenizer_decode(t, ids.id, ids.n, false, &back, &e), 0);
		assert_int_equal(back.n, N);
		assert_memory_equal(back.p, text, N);
		buf_release(&back);
		tokenizer_free(t);
	}
	mem_free(text);
	tokens_release(&ids);
}

/* Byte-level: any bytes come back. SentencePiece: through <0xNN>. */
static void test_bytes(void **state)
{
	(void)state;
	static const char *const files[] = { "gpt2",   "smollm2", "llama3",
					     "tekken", "llama2",  "mistral" };
	static const char *const bad[] = { "\xff",
					   "a\xc3",
					   "\xc3(",
					   "\xed\xa0\x80",
					   "\xf4\x90\x80\x80",
					   "\xc0\x80 x",
					   "\xe2\x82",
					   "ok \x80\x81 \xe2\x82\xac\xe2 end",
					   "\xf0\x9f\x98",
					   "\xfe\xfe\xff\xff" };
	for (size_t f = 0; f < ARRAY_LEN(files); f++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		char path[128];
		snprintf(path, sizeof path, DIR "%s.json", files[f]);
		if (tokenizer_from_file(path, NULL, &t, &e) < 0)
			fail_msg("%s", e.msg);
		for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
			struct tokens ids = { 0 };
			struct buf back = BUF_INIT;
			assert_int_equal(
				tokenizer_encode(t, bad[i], strlen(bad[i]), false, true, &ids, &e),
				0);
			assert_int_equal(tokenizer_decode(t, ids.id, ids.n, false, &back, &e), 0);
			if (back.n != strlen(bad[i]) || memcmp(back.p, bad[i], back.n))
				fail_msg("%s: text %zu comes back as '%s'", files[f], i, back.p);
			buf_release(&back);
			tokens_release(&ids);
		}
		const int32_t none[] = { -1, 1 << 30 };
		struct buf back = BUF_INIT;
		buf_adds(&back, "kept");
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(tokenizer_decode(t, &none[i], 1, false, &back, &e),
					 ERR_INPUT);
		assert_string_equal(back.p, "kept");
		assert_null(tokenizer_token(t, -1));
		assert_null(tokenizer_token(t, 1 << 30));
		assert_false(tokenizer_is_special(t, -1));
		buf_release(&back);
		tokenizer_free(t);
	}
}

static void test_config(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	struct tokens ids = { 0 };
	json_t *doc = load(DIR "llama2.json");
	json_t *config = parse("{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,"
			       "\"add_eos_token\":true,\"bos_"
			       "token\":{\"content\":\"<s>\"},"
			       "\"eos_token\":\"</s>\",\"pad_token\":null}");
	assert_int_equal(tokenizer_from_json(doc, config, "x", &t, &e), 0);
	assert_int_equal(tokenizer_bos(t), tokenizer_id(t, "<s>"));
	assert_int_equal(tokenizer_eos(t), tokenizer_id(t, "</s>"));
	assert_int_equal(tokenizer_pad(t), -1);
	assert_true(tokenizer_is_special(t, tokenizer_eos(t)));
	assert_int_equal(tokenizer_id(t, "</s"), -1);
	assert_string_equal(tokenizer_token(t, tokenizer_eos(t)), "</s>");
	assert_int_equal(tokenizer_encode(t, "", 0, true, false, &ids, &e), 0);
	assert_int_equal(ids.n, 2);
	assert_int_equal(ids.id[0], tokenizer_bos(t));
	assert_int_equal(ids.id[1], tokenizer_eos(t));
	tokenizer_free(t);
	json_object_set_new(config, "add_bos_token", json_false());
	json_object_set_new(config, "add_eos_token", json_false());
	assert_int_equal(tokenizer_from_json(doc, config, "x", &t, &e), 0);
	ids.n = 0;
	assert_int_equal(tokenizer_encode(t, "", 0, true, false, &ids, &e), 0);
	assert_int_equal(ids.n, 0);
	tokenizer_free(t);
	/* Other classes leave that to tokenizer.json. */
	json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
	assert_int_equal(tokenizer_from_json(doc, config, "x", &t, &e), 0);
	assert_int_equal(tokenizer_encode(t, "", 0, true, false, &ids, &e), 0);
	assert_int_equal(ids.n, 1);
	tokenizer_free(t);
	tokens_release(&ids);
	json_decref(config);
	json_decref(doc);
}

/* Each allocation fails once: the result is an error, with no leak and nothing half done. */
static void test_memory(void **state)
{
	(void)state;
	static const char *const files[] = { "flags", "llama2", "spm_gguf" };
	static const char text[] = "A na\xc3\xafve <s> word, e\xcc\x81 12 \xff and one "
				   "muchmuchmuchlongerthanalltheotherwords";
	for (size_t f = 0; f < ARRAY_LEN(files); f++) {
		char path[128];
		snprintf(path, sizeof path, DIR "%s.json", files[f]);
		json_t *doc = load(path);
		bool gguf = f == 2;
		uint64_t k = 1;
		for (;; k++) {
			struct err e = { 0 };
			struct tokenizer *t = NULL;
			struct tokens ids = { 0 };
			struct buf back = BUF_INIT;
			mem_fail_after(k);
			int rc = gguf ? tokenizer_from_gguf(doc, "x", &t, &e)
				      : tokenizer_from_json(doc, NULL, "x", &t, &e);
			if (rc == 0)
				rc = tokenizer_encode(t, text, sizeof text - 1, true, true, &ids,
						      &e);
			if (rc < 0)
				assert_int_equal(ids.n, 0);
			if (rc == 0)
				rc = tokenizer_decode(t, ids.id, ids.n, false, &back, &e);
			mem_fail_after(0);
			if (rc < 0 && rc != ERR_NOMEM)
				fail_msg("%s, allocation %d: %s", files[f], (int)k, e.msg);
			tokenizer_free(t);
			tokens_release(&ids);
			buf_release(&back);
			if (rc == 0)
				break;
		}
		printf("  %s: %d allocations\n", files[f], (int)k - 1);
		assert_true(k > 10);
		json_decref(doc);
	}
}

struct job {
	const struct tokenizer *t;
	const json_t *lines;
	uint64_t digest;
	int rc;
};

static void *encode_all(void *arg)
{
	struct job *j = arg;
	struct err e = { 0 };
	struct tokens ids = { 0 };
	size_t i;
	json_t *line;
	json_array_foreach(j->lines, i, line) if (j->rc == 0) j->rc = tokenizer_encode(
		j->t, json_string_value(line), json_string_length(line), true, i & 1, &ids, &e);
	for (i = 0; i < ids.n; i++)
		j->digest = (j->digest ^ (uint32_t)ids.id[i]) * 0x100000001b3u;
	tokens_release(&ids);
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	static const char *const files[] = { "qwen2", "mistral" };
	json_t *lines = load(DIR "lines.json");
	for (size_t f = 0; f < ARRAY_LEN(files); f++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		char path[128];
		pthread_t thread[4];
		struct job job[4];
		snprintf(path, sizeof path, DIR "%s.json", files[f]);
		assert_int_equal(tokenizer_from_file(path, NULL, &t, &e), 0);
		for (int i = 0; i < 4; i++) {
			job[i] = (struct job){ t, lines, 1, 0 };
			assert_int_equal(pthread_create(&thread[i], NULL, encode_all, &job[i]), 0);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(thread[i], NULL);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(job[i].rc, 0);
			assert_true(job[i].digest == job[0].digest && job[i].digest != 1);
		}
		tokenizer_free(t);
	}
	json_decref(lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_patterns), cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_config),   cmocka_unit_test(test_memory),
		cmocka_unit_test(test_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
