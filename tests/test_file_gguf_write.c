/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_gguf_write.c - models written as GGUF and read back: weights, configuration and
 * vocabulary, from folders and from GGUF files. Adapters: test_file_gguf_adapter.c. */
#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/gguf_write.h"
#include "file/model_file.h"
#include "file/safetensors.h"
#include "model/model.h"
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

/* Quantises to Q8_0 and back: what the file must hold for a matrix whose width allows it. */
static void through_q8(float *x, uint64_t n)
{
	struct err e = { 0 };
	void *q = malloc(n / 32 * 34);
	assert_int_equal(ggml_quantize(GGML_Q8_0, x, q, n, &e), 0);
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
		/* a decay is stored as -exp of it */
		const float off = strstr(y->name, "A_log") ? 5e-7f : 0;
		for (uint64_t k = 0; k < x->count; k++)
			if (!(fabsf(p[k] - q[k]) <= off))
				fail_msg("%s[%llu] is %g, must be %g", y->name,
					 (unsigned long long)k, p[k], q[k]);
		/* a part of it */
		const uint64_t row = x->count / (uint64_t)x->shape[0];
		if (x->shape[0] > 2)
			assert_int_equal(model_file_read_f32(a, x, 1, x->shape[0] - 2, q + row, &e),
					 0);
		assert_memory_equal(p + row, q + row,
				    x->shape[0] > 2 ? (size_t)(x->count - 2 * row) * 4 : 0);
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
	static const char *const names[] = { "llama2",    "llama31",      "smollm2",
					     "tinyllama", "mistral-full", "mistral",
					     "qwen2",     "qwen3",        "llama-linear" };
	struct model_config c;
	struct err e = { 0 };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct model_file *b = open_model(repository("tests/golden/models/%s", names[i]));
		for (int q8 = 0; q8 < 2; q8++) {
			const char *out = scratch("%s-%d.gguf", names[i], q8);
			struct model_file *a = convert(b, q8 ? GGUF_OUT_Q8_0 : GGUF_OUT_F16, out);
			same_weights(a, b, q8);
			same_config(model_file_config(a), model_file_config(b));
			if (model_config_read(model_file_config(a), out, &c, &e) < 0)
				fail_msg("%s", e.msg);
			if (!strcmp(names[i], "mistral")) /* a llama with a window */
				assert_true(get(model_file_config(a), "sliding_window", 0) == 11);
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
		struct model_file *a = convert(b, GGUF_OUT_Q8_0, scratch("carried-%zu.gguf", i));
		same_weights(a, b, true);
		assert_true(json_equal(model_file_config(a), model_file_config(b)));
		assert_true(json_equal(model_file_gguf_vocab(a), model_file_gguf_vocab(b)));
		struct gguf g, h;
		json_t *v = NULL;
		assert_int_equal(gguf_open(model_file_path(a), &g, &e), 0);
		assert_int_equal(gguf_open(model_file_path(b), &h, &e), 0);
		assert_int_equal(g.nkv, h.nkv + 1); /* one more: the key that this program adds */
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

static const struct gguf_tensor *tensor_of(const struct gguf *g, const char *name)
{
	for (size_t i = 0; i < g->ntensor; i++)
		if (!strcmp(g->tensor[i].name, name))
			return &g->tensor[i];
	return NULL;
}

/* Families whose files the package `gguf` made too, with llama.cpp's names: every pair and every
 * byte of the tensors is the same, and the file made from that file is the same again. */
/* The logarithm of a decay was rounded in between. */
static bool same_decay(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
	bool same = strstr(a->name, ".ssm_a") && a->type == GGML_F32;
	for (uint64_t i = 0; same && i < a->count; i++) {
		float x, y;
		memcpy(&x, a->data + 4 * i, 4);
		memcpy(&y, b->data + 4 * i, 4);
		same = fabsf(x - y) <= 5e-7f * fabsf(y);
	}
	return same;
}

static void test_families(void **state)
{
	(void)state;
	static const char *const names[] = {
		"granite",      "olmo2",     "smollm3-gguf", "gemma",    "gemma2-gguf",
		"gemma3-gguf",  "phi3",      "phi4-mini",    "glm4",     "olmoe",
		"mixtral",      "qwen3-moe", "qwen2-moe",    "glm4-moe", "olmo3",
		"exaone4-gguf", "ernie4_5",  "qwen3_5-gguf", "seed_oss", "qwen3_5-moe-gguf",
		"ernie4_5-moe", "lfm2",      "lfm2-moe",     "granite4", "gemma4",
		"gemma4-moe"
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct err e = { 0 };
		const char *golden = repository("tests/golden/models/%s.gguf", names[i]);
		struct model_file *b = open_model(repository("tests/golden/models/%s", names[i]));
		struct model_file *a = convert(b, GGUF_OUT_F16, scratch("%s.gguf", names[i])), *c;
		if (strcmp(names[i], "granite4") != 0) /* gate and up are two matrices in it */
			same_weights(a, b, false);
		struct gguf g, h, k;
		size_t pairs = 0;
		assert_int_equal(gguf_open(model_file_path(a), &g, &e), 0);
		assert_int_equal(gguf_open(golden, &h, &e), 0);
		for (size_t n = 0; n < h.nkv; n++) {
			const struct gguf_kv *want = &h.kv[n], *got = gguf_find(&g, want->key);
			if (!got || got->raw_bytes != want->raw_bytes ||
			    memcmp(got->raw, want->raw, want->raw_bytes) != 0)
				fail_msg("%s: '%s' differs", names[i], want->key);
			pairs++;
		}
		assert_int_equal(g.ntensor, h.ntensor);
		c = open_model(golden);
		model_file_close(convert(c, GGUF_OUT_F16, scratch("%s-again.gguf", names[i])));
		assert_int_equal(gguf_open(scratch("%s-again.gguf", names[i]), &k, &e), 0);
		for (size_t n = 0; n < h.ntensor; n++) {
			const struct gguf_tensor *want = &h.tensor[n],
						 *got = tensor_of(&g, want->name),
						 *again = tensor_of(&k, want->name);
			if (!got || got->type != want->type || got->bytes != want->bytes ||
			    memcmp(got->data, want->data, want->bytes) != 0)
				fail_msg("%s: tensor '%s' differs", names[i], want->name);
			if (!again || again->bytes != want->bytes ||
			    (memcmp(again->data, want->data, want->bytes) != 0 &&
			     !same_decay(again, want)))
				fail_msg("%s: tensor '%s' differs the second time", names[i],
					 want->name);
		}
		print_message("# %s: %zu pairs and %zu tensors identical\n", names[i], pairs,
			      h.ntensor);
		gguf_close(&g), gguf_close(&h), gguf_close(&k);
		model_file_close(a), model_file_close(b), model_file_close(c);
	}
}

/* Layers that predict further tokens are not read: nothing says in the copy that they are there. */
static void test_extra_layers(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct gguf g;
	json_t *v = NULL;
	struct model_file *b = open_model(repository("tests/fuzz/seeds/gguf/qwen35"));
	model_file_close(convert(b, GGUF_OUT_AS_BASE, scratch("copy.gguf")));
	assert_int_equal(gguf_open(model_file_path(b), &g, &e), 0);
	assert_non_null(gguf_find(&g, "qwen35.nextn_predict_layers"));
	gguf_close(&g);
	assert_int_equal(gguf_open(scratch("copy.gguf"), &g, &e), 0);
	assert_null(gguf_find(&g, "qwen35.nextn_predict_layers"));
	assert_int_equal(gguf_kv_one(&g, gguf_find(&g, "qwen35.block_count"), &v, &e), 0);
	assert_int_equal(json_integer_value(v), 2);
	json_decref(v);
	gguf_close(&g);
	model_file_close(b);
}

/* What llama.cpp knows by the family alone and a model has otherwise. */
static void test_no_place(void **state)
{
	(void)state;
	static const char *const row[][2] = {
		{ "gemma2", "query_pre_attn_scalar" }, { "gemma3", "sliding_window_pattern" },
		{ "gemma3-new", "layer_types" },       { "smollm3", "no_rope_layers" },
		{ "exaone4", "sliding_window" },       { "glm", "'glm'" },
		{ "llama-dynamic", "dynamic" },        { "qwen3_5", "linear_value_head_dim" }
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct err e = { 0 };
		struct stat st;
		struct model_file *b = open_model(repository("tests/golden/models/%s", row[i][0]));
		const char *out = scratch("no-place.gguf");
		assert_int_equal(gguf_write_model(out, b, GGUF_OUT_F16, from_model, b, &e),
				 ERR_UNSUPPORTED);
		print_message("# %s\n", e.msg);
		assert_non_null(strstr(e.msg, row[i][1]));
		assert_int_not_equal(stat(out, &st), 0);
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
	a = convert(b, GGUF_OUT_F16, scratch("spm.gguf"));
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
	/* Llama's class goes by its configuration and not by the post-processor */
	scratch_text(scratch("spm/tokenizer_config.json"),
		     "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":false,"
		     "\"add_eos_token\":true}");
	b = open_model(scratch("spm"));
	a = convert(b, GGUF_OUT_F16, scratch("class.gguf"));
	v = model_file_gguf_vocab(a);
	assert_true(json_is_false(json_object_get(v, "tokenizer.ggml.add_bos_token")));
	assert_true(json_is_true(json_object_get(v, "tokenizer.ggml.add_eos_token")));
	model_file_close(a);
	model_file_close(b);
	scratch_text(scratch("spm/tokenizer_config.json"), "{}");
}

/* Gemma 4 has merges in place of scores, and special tokens that llama.cpp shows. */
static void test_gemma4_vocab(void **state)
{
	(void)state;
	const char *folder = scratch("gemma4");
	struct model_file *b, *a;
	assert_int_equal(mkdir(folder, 0700), 0);
	scratch_text(scratch("gemma4/config.json"),
		     "{\"model_type\":\"gemma4_text\",\"hidden_size\":4,\"intermediate_size\":4,"
		     "\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":4,"
		     "\"global_head_dim\":4,\"hidden_size_per_layer_input\":0,"
		     "\"max_position_embeddings\":8,\"vocab_size\":10}");
	char data[8 + 1000];
	const char *head = "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[10,4],"
			   "\"data_offsets\":[0,160]}}";
	uint64_t n = strlen(head);
	memset(data, 0, sizeof data);
	memcpy(data, &n, 8);
	memcpy(data + 8, head, n);
	scratch_write(scratch("gemma4/model.safetensors"), data, 8 + n + 160);
	scratch_text(
		scratch("gemma4/tokenizer.json"),
		"{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,"
		"\"content\":\"<bos>\",\"special\":true},{\"id\":8,\"content\":\"<|channel>\","
		"\"special\":true}],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":"
		"\" \"},\"content\":\"\xe2\x96\x81\"},\"pre_tokenizer\":null,\"post_processor\":"
		"null,\"decoder\":null,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
		"\"unk_token\":\"<unk>\",\"merges\":[\"b c\",[\"a\",\"bc\"]],\"vocab\":{\"<unk>\""
		":0,\"<bos>\":1,\"</s>\":2,\"<0x0A>\":3,\"abc\":4,\"bc\":5,\"a\":6,\"b\":7,"
		"\"c\":9}}}");
	b = open_model(folder);
	a = convert(b, GGUF_OUT_F16, scratch("gemma4.gguf"));
	const json_t *v = model_file_gguf_vocab(a),
		     *type = json_object_get(v, "tokenizer.ggml.token_type"),
		     *merges = json_object_get(v, "tokenizer.ggml.merges");
	static const int types[] = { 2, 3, 1, 6, 1, 1, 1, 1, 4, 1 };
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(json_integer_value(json_array_get(type, i)), types[i]);
	assert_string_equal(json_string_value(json_object_get(v, "tokenizer.ggml.model")),
			    "gemma4");
	assert_null(json_object_get(v, "tokenizer.ggml.scores"));
	/* without the key llama.cpp would take 30 */
	struct err e = { 0 };
	struct gguf g;
	json_t *cap = NULL;
	assert_int_equal(gguf_open(model_file_path(a), &g, &e), 0);
	const struct gguf_kv *kv = gguf_find(&g, "gemma4.final_logit_softcapping");
	assert_int_equal(gguf_kv_one(&g, kv, &cap, &e), 0);
	assert_true(json_is_number(cap) && json_number_value(cap) == 0);
	json_decref(cap);
	gguf_close(&g);
	assert_null(json_object_get(model_file_config(a), "final_logit_softcapping"));
	assert_int_equal(json_array_size(merges), 2);
	assert_string_equal(json_string_value(json_array_get(merges, 1)), "a bc");
	assert_true(json_is_false(json_object_get(v, "tokenizer.ggml.add_space_prefix")));
	model_file_close(a);
	model_file_close(b);
}

#define LLAMA3                                                                                     \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}"       \
	"| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define CASED(behind)                                                                              \
	"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"            \
	"[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+" behind                                            \
	"|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"           \
	"[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*" behind

/* Pre-tokenizers by their patterns; the reader knows each name. */
#define WORDS(letters, others, once, ends)                                                         \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^" ends "\\\\p{L}\\\\p{N}]?" letters "+|\\\\p{N}" once      \
	"| ?" others "|\\\\s*[" ends "]+|\\\\s+(?!\\\\S)|\\\\s+"

static void test_pre_names(void **state)
{
	(void)state;
	static const struct {
		const char *pattern, *split, *merges, *want;
	} row[] = {
		{ LLAMA3, "\"Isolated\",\"invert\":false", "true", "llama-bpe" },
		{ LLAMA3, "\"Removed\",\"invert\":true", "false", "dbrx" },
		{ LLAMA3, "\"Removed\",\"invert\":false", "false", NULL },
		{ CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") "|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]"
							 "+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|"
							 "\\\\s+(?!\\\\S)|\\\\s+",
		  "\"Isolated\"", "false", "gpt-4o" },
		{ CASED("") "|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]"
			    "+|\\\\s+(?!\\\\S)|\\\\s+",
		  "\"Isolated\"", "true", "tekken" },
		{ WORDS("[\\\\p{L}\\\\p{M}]", "[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*", "",
			"\\\\r\\\\n"),
		  "\"Isolated\"", "false", "qwen35" },
		{ WORDS("\\\\p{L}", "[^\\\\s\\\\p{L}\\\\p{N}\\\\r\\\\n]+", "{1}", "\\\\r\\\\n"),
		  "\"Isolated\"", "false", "seed-coder" },
		{ WORDS("\\\\p{L}", "[^\\\\s\\\\p{L}\\\\p{N}\\r\\n]+", "{1}", "\\r\\n"),
		  "\"Isolated\"", "false", "seed-coder" },
	};
	scratch_text(scratch("spm/config.json"),
		     "{\"model_type\":\"phi3\",\"hidden_size\":4,\"intermediate_size\":4,\"num_"
		     "hidden_layers\":1,\"num_attention_heads\":1,\"max_position_embeddings\":8,"
		     "\"vocab_size\":10,\"tie_word_embeddings\":true}");
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct err e = { 0 };
		struct tokenizer *t = NULL;
		scratch_text(scratch("spm/tokenizer.json"),
			     "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
			     "\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":%s},"
			     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
			     "false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
			     "\"BPE\",\"ignore_merges\":%s,\"merges\":[\"a b\"],\"vocab\":{\"a\":"
			     "0,\"b\":1,\"ab\":2}}}",
			     row[i].pattern, row[i].split, row[i].merges);
		struct model_file *b = open_model(scratch("spm")), *a;
		const char *out = scratch("pre-%zu.gguf", i);
		if (!row[i].want) {
			assert_int_equal(gguf_write_model(out, b, GGUF_OUT_F16, from_model, b, &e),
					 ERR_UNSUPPORTED);
			assert_non_null(strstr(e.msg, "no name in GGUF"));
			model_file_close(b);
			continue;
		}
		a = convert(b, GGUF_OUT_F16, out);
		assert_string_equal(json_string_value(json_object_get(model_file_gguf_vocab(a),
								      "tokenizer.ggml.pre")),
				    row[i].want);
		if (tokenizer_from_gguf(model_file_gguf_vocab(a), out, &t, &e) < 0)
			fail_msg("%s", e.msg);
		tokenizer_free(t);
		model_file_close(a);
		model_file_close(b);
	}
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

#define HEAD(type, tied)                                                                           \
	"{\"model_type\":\"" type "\",\"hidden_size\":4,\"intermediate_size\":4,"                  \
	"\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":4,\"vocab_size\":10,"      \
	"\"max_position_embeddings\":8,\"tie_word_embeddings\":" tied "}"

/* llama.cpp would compute otherwise. */
#define YARN(other)                                                                                \
	HEAD("qwen2", "true,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4," other "}")

static void test_refused(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct stat st;
	/* a model whose width Q8_0 can take */
	struct model_file *b = open_model(repository("tests/golden/models/llama31"));
	struct spoiled s = { b, 1e5f, 0 };
	const char *out = scratch("bad.gguf");
	assert_int_equal(gguf_write_model(out, b, GGUF_OUT_F16, spoil, &s, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "v_proj"));
	assert_int_equal(gguf_write_model(out, b, GGUF_OUT_Q8_0, spoil, &s, &e), 0);
	assert_int_equal(unlink(out), 0);
	s.value = NAN;
	assert_int_equal(gguf_write_model(out, b, GGUF_OUT_Q8_0, spoil, &s, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "v_proj"));
	s.code = ERR_DEVICE;
	assert_int_equal(gguf_write_model(out, b, GGUF_OUT_F16, spoil, &s, &e), ERR_DEVICE);
	assert_int_not_equal(stat(out, &st), 0);
	assert_int_not_equal(stat(scratch("bad.gguf.tmp"), &st), 0);
	model_file_close(b);
	static const char *const configs[][2] = {
		{ "{\"model_type\":\"gemma9\"}", "gemma9" },
		{ "{\"model_type\":\"llama\"}", "hidden_size" },
		{ HEAD("gemma", "false"), "tie_word_embeddings" },
		{ HEAD("gemma2", "false"), "tie_word_embeddings" },
		{ HEAD("olmo2", "true"), "tie_word_embeddings" },
		{ HEAD("gpt_oss", "true"), "tie_word_embeddings" },
		{ YARN("\"beta_fast\":16"), "beta_fast" },
		{ YARN("\"beta_slow\":2"), "beta_slow" },
		{ YARN("\"attention_factor\":1"), "attention_factor" },
		{ YARN("\"mscale\":1,\"mscale_all_dim\":1"), "attention_factor" },
		{ YARN("\"truncate\":false"), "truncate" },
		{ "{}", "model_type" }
	};
	for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
		scratch_text(scratch("spm/config.json"), "%s", configs[i][0]);
		b = open_model(scratch("spm"));
		assert_true(gguf_write_model(out, b, GGUF_OUT_F16, from_model, b, &e) < 0);
		print_message("# %s\n", e.msg);
		assert_non_null(strstr(e.msg, configs[i][1]));
		model_file_close(b);
	}
}

/* Which format each matrix gets, as llama-quantize mixes them. */
static void test_mixtures(void **state)
{
	(void)state;
	static const struct {
		enum gguf_out out;
		struct gguf_place p;
		int want;
	} row[] = {
		{ GGUF_OUT_Q4_K_M, { "blk.0.attn_v.weight", 0, 32, 4096, false, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q4_K_M, { "blk.4.attn_v.weight", 4, 32, 4096, false, 0 }, GGML_Q4_K },
		{ GGUF_OUT_Q4_K_M, { "blk.6.ffn_down.weight", 6, 32, 4096, false, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q4_K_M,
		  { "blk.28.ffn_down.weight", 28, 32, 4096, false, 0 },
		  GGML_Q6_K },
		{ GGUF_OUT_Q4_K_M, { "blk.0.ffn_up.weight", 0, 32, 4096, false, 0 }, GGML_Q4_K },
		{ GGUF_OUT_Q5_K_M, { "blk.0.ffn_up.weight", 0, 32, 4096, false, 0 }, GGML_Q5_K },
		{ GGUF_OUT_Q4_K_M, { "output.weight", -1, 32, 4096, false, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q4_0, { "output.weight", -1, 32, 4096, false, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q4_0, { "token_embd.weight", -1, 32, 4096, false, 0 }, GGML_Q4_0 },
		{ GGUF_OUT_Q4_0, { "token_embd.weight", -1, 32, 4096, true, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q4_K_M, { "blk.0.ffn_up.weight", 0, 32, 576, false, 0 }, GGML_Q5_0 },
		{ GGUF_OUT_Q5_K_M, { "blk.0.ffn_up.weight", 0, 32, 576, false, 0 }, GGML_Q5_1 },
		{ GGUF_OUT_Q6_K, { "blk.0.ffn_up.weight", 0, 32, 576, false, 0 }, GGML_Q8_0 },
		{ GGUF_OUT_Q6_K, { "blk.0.ffn_up.weight", 0, 32, 40, false, 0 }, GGML_F16 },
		{ GGUF_OUT_Q4_K_M, { "blk.0.attn_qkv.weight", 0, 32, 4096, false, 0 }, GGML_Q5_K },
		{ GGUF_OUT_Q5_K_M, { "blk.0.attn_qkv.weight", 0, 32, 4096, false, 0 }, GGML_Q6_K },
		{ GGUF_OUT_Q8_0, { "blk.0.attn_qkv.weight", 0, 32, 4096, false, 0 }, GGML_Q8_0 },
		{ GGUF_OUT_AS_BASE, { "x", 0, 32, 40, false, GGML_Q5_K }, GGML_Q5_K },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (gguf_matrix_type(row[i].out, &row[i].p) != row[i].want)
			fail_msg("row %zu: %s", i,
				 ggml_type_name(gguf_matrix_type(row[i].out, &row[i].p)));
}

static int normal(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		  struct err *e)
{
	(void)ctx;
	(void)e;
	float *v = dst;
	for (uint64_t i = 0; i < n / 4; i++)
		v[i] = 0.03f *
		       rng_normal(rng_key((uint64_t)t->name[7] + strlen(t->name)), off / 4 + i);
	return 0;
}

/* A model as wide as the blocks of 256. */
static struct model_file *make_wide(void)
{
	static const struct {
		const char *name;
		int64_t rows, columns;
	} part[] = { { "input_layernorm", 256, 0 },    { "post_attention_layernorm", 256, 0 },
		     { "self_attn.q_proj", 256, 256 }, { "self_attn.k_proj", 128, 256 },
		     { "self_attn.v_proj", 128, 256 }, { "self_attn.o_proj", 256, 256 },
		     { "mlp.gate_proj", 512, 256 },    { "mlp.up_proj", 512, 256 },
		     { "mlp.down_proj", 256, 512 } };
	enum { LAYERS = 3, PARTS = sizeof part / sizeof *part };
	struct st_spec spec[LAYERS * PARTS + 3];
	static char name[LAYERS * PARTS][96];
	size_t n = 0;
	struct err e = { 0 };
	for (int l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < PARTS; i++, n++) {
			snprintf(name[n], sizeof name[n], "model.layers.%d.%s.weight", l,
				 part[i].name);
			spec[n] = (struct st_spec){ .name = name[n],
						    .ndim = part[i].columns ? 2 : 1,
						    .shape = { part[i].rows, part[i].columns } };
		}
	spec[n++] = (struct st_spec){ .name = "model.embed_tokens.weight",
				      .ndim = 2,
				      .shape = { 40, 256 } };
	spec[n++] = (struct st_spec){ .name = "lm_head.weight", .ndim = 2, .shape = { 40, 256 } };
	spec[n++] = (struct st_spec){ .name = "model.norm.weight", .ndim = 1, .shape = { 256 } };
	scratch_text(scratch("wide/config.json"),
		     "{\"model_type\":\"llama\",\"hidden_size\":256,\"intermediate_size\":512,"
		     "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
		     "\"max_position_embeddings\":8,\"vocab_size\":40,\"rms_norm_eps\":1e-5,"
		     "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}");
	if (st_write(scratch("wide/model.safetensors"), spec, n, NULL, normal, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	return open_model(scratch("wide"));
}

/* Every type is written and read back close to the original. Written again without conversion, the
 * file has the same types, and the same numbers where the format gives them back exactly. */
static void test_types(void **state)
{
	(void)state;
	static const struct {
		enum gguf_out out;
		double least, most; /* limits of the error's norm divided by the numbers' norm */
		bool exact;
	} row[] = { { GGUF_OUT_F32, 0, 0, true },          { GGUF_OUT_BF16, 1e-3, 3e-3, true },
		    { GGUF_OUT_F16, 1e-4, 4e-4, true },    { GGUF_OUT_Q8_0, 3e-3, 8e-3, true },
		    { GGUF_OUT_Q6_K, 0.01, 0.025, false }, { GGUF_OUT_Q5_1, 0.02, 0.045, false },
		    { GGUF_OUT_Q5_0, 0.02, 0.045, false }, { GGUF_OUT_Q5_K_M, 0.02, 0.045, false },
		    { GGUF_OUT_Q4_1, 0.04, 0.1, false },   { GGUF_OUT_Q4_0, 0.04, 0.1, false },
		    { GGUF_OUT_Q4_K_M, 0.04, 0.09, false } };
	struct err e = { 0 };
	struct model_file *b = make_wide();
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct model_file *a = convert(b, row[i].out, scratch("type-%zu.gguf", i)), *c;
		c = convert(a, GGUF_OUT_AS_BASE, scratch("again-%zu.gguf", i));
		double worst = 0;
		for (size_t k = 0; k < model_file_count(b); k++) {
			const struct model_tensor *y = model_file_tensor(b, k),
						  *x = model_file_find(a, y->name),
						  *z = model_file_find(c, y->name);
			float *p = malloc(y->count * 4), *q = malloc(y->count * 4);
			double sum = 0, all = 0;
			assert_int_equal(x->ggml_type, z->ggml_type);
			assert_int_equal(x->kind, z->kind);
			assert_int_equal(x->dtype, z->dtype);
			assert_int_equal(model_file_read_f32(a, x, 0, y->shape[0], p, &e), 0);
			assert_int_equal(model_file_read_f32(b, y, 0, y->shape[0], q, &e), 0);
			for (uint64_t n = 0; n < y->count; n++) {
				sum += ((double)p[n] - q[n]) * ((double)p[n] - q[n]);
				all += (double)q[n] * q[n];
			}
			worst = fmax(worst, sqrt(sum / all));
			assert_int_equal(model_file_read_f32(c, z, 0, y->shape[0], q, &e), 0);
			if (row[i].exact)
				assert_memory_equal(p, q, y->count * 4);
			free(p), free(q);
		}
		print_message("# type %d: relative error at most %.3g\n", (int)row[i].out, worst);
		assert_true(worst >= row[i].least && worst <= row[i].most);
		model_file_close(a);
		model_file_close(c);
	}
	model_file_close(b);
}

/* Experts in MXFP4 keep their numbers: those of a folder become those of the package `gguf`. */
static void test_mxfp4(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct model_file *b = open_model(repository("tests/golden/models/gpt-oss")), *a;
	struct gguf g, h;
	int seen = 0;
	a = convert(b, GGUF_OUT_AS_BASE, scratch("mxfp4.gguf"));
	same_weights(a, b, false);
	assert_int_equal(gguf_open(model_file_path(a), &g, &e), 0);
	assert_int_equal(gguf_open(repository("tests/golden/models/gpt-oss.gguf"), &h, &e), 0);
	assert_int_equal(g.ntensor, h.ntensor);
	for (size_t n = 0; n < h.nkv; n++) {
		const struct gguf_kv *want = &h.kv[n], *got = gguf_find(&g, want->key);
		if (!got || got->raw_bytes != want->raw_bytes ||
		    memcmp(got->raw, want->raw, want->raw_bytes) != 0)
			fail_msg("gpt-oss: '%s' differs", want->key);
	}
	for (size_t n = 0; n < h.ntensor; n++) {
		const struct gguf_tensor *want = &h.tensor[n], *got = tensor_of(&g, want->name);
		assert_non_null(got);
		if (want->type != 39 && want->type != 0)
			continue; /* F16 there, BF16 here */
		if (got->type != want->type || got->bytes != want->bytes ||
		    memcmp(got->data, want->data, want->bytes) != 0)
			fail_msg("gpt-oss: tensor '%s' differs", want->name);
		seen += want->type == 39;
	}
	assert_int_equal(seen, 6);
	gguf_close(&g), gguf_close(&h);
	model_file_close(a), model_file_close(b);
}

/* A file whose experts are fewer or more than it says, and a choice of more than there are. */
static void test_wrong_experts(void **state)
{
	(void)state;
	static const struct {
		const char *key;
		uint32_t v;
		const char *word;
	} row[] = { { "qwen3moe.expert_count", 7, "'blk.0.ffn_gate_exps.weight' has 8 experts" },
		    { "qwen3moe.expert_count", 9, "'blk.0.ffn_gate_exps.weight' has 8 experts" },
		    { "qwen3moe.expert_count", 0, "qwen3moe.expert_count" },
		    { "qwen3moe.expert_count", 5000, "of 5000 experts" },
		    { "qwen3moe.expert_used_count", 9, "a token goes to 9 of 8 experts" } };
	struct err e = { 0 };
	struct gguf g;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct model_file *f;
		const char *path = repository("tests/golden/models/qwen3-moe.gguf"),
			   *bad = scratch("wrong-experts.gguf");
		assert_int_equal(gguf_open(path, &g, &e), 0);
		const struct gguf_kv *kv = gguf_find(&g, row[i].key);
		assert_non_null(kv);
		const size_t at = (size_t)(kv->value - (const uint8_t *)g.map.p), n = g.map.size;
		uint8_t *copy = malloc(n);
		assert_non_null(copy);
		memcpy(copy, g.map.p, n);
		memcpy(copy + at, &row[i].v, 4);
		scratch_write(bad, copy, n);
		free(copy);
		gguf_close(&g);
		assert_true(model_file_open(bad, &f, &e) < 0);
		print_message("# %s\n", e.msg);
		assert_non_null(strstr(e.msg, row[i].word));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_folders),       cmocka_unit_test(test_families),
		cmocka_unit_test(test_extra_layers),  cmocka_unit_test(test_no_place),
		cmocka_unit_test(test_vocab),         cmocka_unit_test(test_carried),
		cmocka_unit_test(test_mixtures),      cmocka_unit_test(test_mxfp4),
		cmocka_unit_test(test_wrong_experts), cmocka_unit_test(test_types),
		cmocka_unit_test(test_spm),           cmocka_unit_test(test_gemma4_vocab),
		cmocka_unit_test(test_pre_names),     cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
