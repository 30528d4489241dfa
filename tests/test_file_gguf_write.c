/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_gguf_write.c - models written as GGUF and read back: weights, configuration and
 * vocabulary, from folders and from GGUF files. */
#include "base/buf.h"
#include "base/err.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/gguf_write.h"
#include "file/model_file.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct model_file *open_model(const char *path)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	if (model_file_open(path, &f, &e) < 0)
		fail_msg("%s", e.msg);
	return f;
}

static int from_model(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		      struct err *e)
{
	const struct model_tensor *t = model_file_find(ctx, name);
	return t ? model_file_read_f32(ctx, t, row0, rows, dst, e)
		 : err_set(e, ERR_INTERNAL, "no '%s'", name);
}

static struct model_file *convert(struct model_file *base, enum gguf_out type, const char *out)
{
	struct err e = { 0 };
	if (gguf_write_model(out, base, type, from_model, base, &e) < 0)
		fail_msg("%s", e.msg);
	return open_model(out);
}

/* Through Q8_0 and back, as the file must show a matrix whose width allows it. */
static void through_q8(float *x, uint64_t n)
{
	struct err e = { 0 };
	void *q = malloc(n / 32 * 34);
	assert_int_equal(ggml_quantize_q8_0(x, q, n, &e), 0);
	assert_int_equal(ggml_dequantize(GGML_Q8_0, q, x, n, &e), 0);
	free(q);
}

static void same_weights(struct model_file *a, struct model_file *b, bool q8)
{
	struct err e = { 0 };
	size_t shared = 0;
	for (size_t i = 0; i < model_file_count(b); i++) {
		const struct model_tensor *y = model_file_tensor(b, i),
					  *x = model_file_find(a, y->name);
		assert_non_null(x);
		assert_int_equal(x->ndim, y->ndim);
		assert_int_equal(x->shape[0], y->shape[0]);
		assert_int_equal(x->shape[1], y->shape[1]);
		float *p = malloc(x->count * 4), *q = malloc(x->count * 4);
		assert_int_equal(model_file_read_f32(a, x, 0, x->shape[0], p, &e), 0);
		assert_int_equal(model_file_read_f32(b, y, 0, y->shape[0], q, &e), 0);
		if (y->ndim == 1)
			assert_int_equal(x->dtype, DT_F32);
		if (q8 && y->ndim == 2 && y->shape[1] % 32 == 0) {
			assert_int_equal(x->ggml_type, GGML_Q8_0);
			through_q8(q, y->count);
		}
		for (uint64_t k = 0; k < x->count; k++)
			if (!(p[k] == q[k]))
				fail_msg("%s[%llu] is %g, must be %g", y->name,
					 (unsigned long long)k, p[k], q[k]);
		shared++;
		free(p), free(q);
	}
	assert_int_equal(shared, model_file_count(a));
}

static double get(const json_t *o, const char *key, double fallback)
{
	const json_t *v = json_object_get(o, key), *p = json_object_get(o, "rope_parameters");
	if (!v && !strcmp(key, "rope_theta"))
		v = json_object_get(p, key);
	if (json_is_boolean(v))
		return json_is_true(v);
	return json_is_number(v) ? json_number_value(v) : fallback;
}

static void same_config(const json_t *a, const json_t *b)
{
	static const char *const keys[] = { "hidden_size",         "intermediate_size",
					    "num_hidden_layers",   "num_attention_heads",
					    "num_key_value_heads", "rope_theta",
					    "vocab_size",          "max_position_embeddings",
					    "tie_word_embeddings", "rms_norm_eps" };
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (get(a, keys[i], -1) != get(b, keys[i], -1))
			fail_msg("'%s' is %g, must be %g", keys[i], get(a, keys[i], -1),
				 get(b, keys[i], -1));
	double hidden = get(b, "hidden_size", 0) / get(b, "num_attention_heads", 1);
	assert_true(get(a, "head_dim", 0) == get(b, "head_dim", hidden));
}

static void test_folders(void **state)
{
	(void)state;
	static const char *const names[] = { "llama2",       "llama31", "smollm2", "tinyllama",
					     "mistral-full", "qwen2",   "qwen3",   "llama-linear" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct model_file *b = open_model(repository("tests/golden/models/%s", names[i]));
		for (int q8 = 0; q8 < 2; q8++) {
			const char *out = scratch("%s-%d.gguf", names[i], q8);
			struct model_file *a = convert(b, q8 ? GGUF_Q8_0 : GGUF_F16, out);
			same_weights(a, b, q8);
			same_config(model_file_config(a), model_file_config(b));
			print_message("# %s%s: %zu tensors\n", names[i], q8 ? ", Q8_0" : "",
				      model_file_count(a));
			if (!strcmp(names[i], "llama-linear"))
				assert_true(json_number_value(json_object_get(
						    json_object_get(model_file_config(a),
								    "rope_scaling"),
						    "factor")) == 4);
			model_file_close(a);
		}
		model_file_close(b);
	}
}

/* The same pairs as the reference's converter writes for the same folder. */
static void same_vocab(const char *ours, const char *golden)
{
	struct model_file *a = open_model(ours), *b = open_model(golden);
	const char *key;
	json_t *want;
	size_t n = 0;
	json_object_foreach((json_t *)model_file_gguf_vocab(b), key, want)
	{
		const json_t *v = json_object_get(model_file_gguf_vocab(a), key);
		if (!strcmp(key, "tokenizer.ggml.add_bos_token") ||
		    !strcmp(key, "tokenizer.ggml.add_space_prefix")) {
			if (v && !json_equal(v, want))
				fail_msg("%s: '%s' differs", ours, key);
			continue;
		}
		if (!json_equal(v, want))
			fail_msg("%s: '%s' differs: %s", ours, key,
				 json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT));
		n++;
	}
	print_message("# %s: %zu pairs identical\n", golden, n);
	assert_true(n >= 7);
	assert_true(json_equal(json_object_get(model_file_config(a), "rope_scaling"),
			       json_object_get(model_file_config(b), "rope_scaling")));
	model_file_close(a);
	model_file_close(b);
}

static void test_vocab(void **state)
{
	(void)state;
	same_vocab(scratch("smollm2-0.gguf"), repository("tests/golden/models/smollm2-f32.gguf"));
	same_vocab(scratch("llama31-0.gguf"), repository("tests/golden/models/llama31-f16.gguf"));
}

static void test_carried(void **state)
{
	(void)state;
	static const char *const names[] = { "smollm2-f32.gguf", "llama31-f16.gguf" };
	for (size_t i = 0; i < 2; i++) {
		struct err e = { 0 };
		struct model_file *b = open_model(repository("tests/golden/models/%s", names[i]));
		struct model_file *a = convert(b, GGUF_Q8_0, scratch("carried-%zu.gguf", i));
		same_weights(a, b, true);
		assert_true(json_equal(model_file_config(a), model_file_config(b)));
		assert_true(json_equal(model_file_gguf_vocab(a), model_file_gguf_vocab(b)));
		struct gguf g, h;
		json_t *v = NULL;
		assert_int_equal(gguf_open(model_file_path(a), &g, &e), 0);
		assert_int_equal(gguf_open(model_file_path(b), &h, &e), 0);
		assert_int_equal(g.nkv, h.nkv);
		assert_int_equal(g.ntensor, h.ntensor);
		assert_int_equal(gguf_kv_json(&g, gguf_find(&g, "general.file_type"), &v, &e), 0);
		assert_int_equal(json_integer_value(v), 7);
		json_decref(v);
		gguf_close(&g);
		gguf_close(&h);
		model_file_close(a);
		model_file_close(b);
	}
}

/* SentencePiece-style BPE: scores order the merges, bytes and special tokens have their types. */
static void test_spm(void **state)
{
	(void)state;
	struct model_file *b, *a;
	scratch_text(
		scratch("spm/config.json"),
		"{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":4,\"num_hidden_"
		"layers\":1,\"num_attention_heads\":1,"
		"\"max_position_embeddings\":8,\"vocab_size\":10,\"tie_word_embeddings\":true,"
		"\"bos_token_id\":1,\"eos_token_id\":[2,3]}");
	char data[8 + 1000];
	const char *head = "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[10,4],"
			   "\"data_offsets\":[0,160]}}";
	uint64_t n = strlen(head);
	memset(data, 0, sizeof data);
	memcpy(data, &n, 8);
	memcpy(data + 8, head, n);
	scratch_write(scratch("spm/model.safetensors"), data, 8 + n + 160);
	scratch_text(scratch("spm/tokenizer_config.json"),
		     "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},{\"name\":"
		     "\"default\",\"template\":\"hello\"}]}");
	scratch_text(scratch("spm/tokenizer.json"),
		     "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":"
		     "1,\"content\":\"<s>\","
		     "\"special\":true},"
		     "{\"id\":8,\"content\":\"<own>\",\"special\":false}],"
		     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
		     "\"prepend\":\"\xe2\x96\x81\"}]},"
		     "\"pre_tokenizer\":null,"
		     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
		     "\"SpecialToken\":{\"id\":\"<s>\"}},{"
		     "\"Sequence\":{\"id\":\"A\"}}]},"
		     "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\","
		     "\"merges\":[\"b "
		     "c\",[\"a\",\"bc\"],\"ab c\"],"
		     "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</"
		     "s>\":2,\"<0x0A>\":3,\"abc\":4,\"bc\":5,\"a\":6,\"b\":7}}}");
	b = open_model(scratch("spm"));
	a = convert(b, GGUF_F16, scratch("spm.gguf"));
	const json_t *v = model_file_gguf_vocab(a),
		     *type = json_object_get(v, "tokenizer.ggml.token_type"),
		     *score = json_object_get(v, "tokenizer.ggml.scores");
	static const int types[] = { 2, 3, 1, 6, 1, 1, 1, 1, 4, 5 };
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(json_integer_value(json_array_get(type, i)), types[i]);
	assert_true(json_number_value(json_array_get(score, 5)) == 0);
	assert_true(json_number_value(json_array_get(score, 4)) == -1);
	assert_true(json_number_value(json_array_get(score, 7)) == -4);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(v, "tokenizer.ggml.tokens"), 9)),
		"[PAD9]");
	assert_string_equal(json_string_value(json_object_get(v, "tokenizer.ggml.model")), "llama");
	assert_true(json_is_true(json_object_get(v, "tokenizer.ggml.add_bos_token")));
	assert_true(json_is_false(json_object_get(v, "tokenizer.ggml.add_eos_token")));
	assert_true(json_is_true(json_object_get(v, "tokenizer.ggml.add_space_prefix")));
	assert_int_equal(json_integer_value(json_object_get(v, "tokenizer.ggml.bos_token_id")), 1);
	assert_int_equal(json_integer_value(json_object_get(v, "tokenizer.ggml.eos_token_id")), 2);
	assert_string_equal(model_file_chat_template(a), "hello");
	model_file_close(a);
	model_file_close(b);
}

struct spoiled {
	struct model_file *f;
	float value;
	int code;
};

static int spoil(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	struct spoiled *s = ctx;
	TRY(from_model(s->f, name, row0, rows, dst, e));
	if (strstr(name, "v_proj"))
		dst[0] = s->value;
	return s->code ? err_set(e, s->code, "no more") : 0;
}

static void test_refused(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct stat st;
	/* a width that Q8_0 takes */
	struct model_file *b = open_model(repository("tests/golden/models/llama31"));
	struct spoiled s = { b, 1e5f, 0 };
	const char *out = scratch("bad.gguf");
	assert_int_equal(gguf_write_model(out, b, GGUF_F16, spoil, &s, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "v_proj"));
	assert_int_equal(gguf_write_model(out, b, GGUF_Q8_0, spoil, &s, &e), 0);
	assert_int_equal(unlink(out), 0);
	s.value = NAN;
	assert_int_equal(gguf_write_model(out, b, GGUF_Q8_0, spoil, &s, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "v_proj"));
	s.code = ERR_DEVICE;
	assert_int_equal(gguf_write_model(out, b, GGUF_F16, spoil, &s, &e), ERR_DEVICE);
	assert_int_not_equal(stat(out, &st), 0);
	assert_int_not_equal(stat(scratch("bad.gguf.tmp"), &st), 0);
	model_file_close(b);
	static const char *const configs[][2] = { { "{\"model_type\":\"gemma\"}", "gemma" },
						  { "{\"model_type\":\"llama\"}", "hidden_size" },
						  { "{}", "model_type" } };
	for (size_t i = 0; i < 3; i++) {
		scratch_text(scratch("spm/config.json"), "%s", configs[i][0]);
		b = open_model(scratch("spm"));
		assert_true(gguf_write_model(out, b, GGUF_F16, from_model, b, &e) < 0);
		print_message("# %s\n", e.msg);
		assert_non_null(strstr(e.msg, configs[i][1]));
		model_file_close(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_folders), cmocka_unit_test(test_vocab),
		cmocka_unit_test(test_carried), cmocka_unit_test(test_spm),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
