/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_gguf.c - GGUF: every block format against the reference, whole models against the
 * folders they were made from, and files whose fields are wrong. */
#include "base/buf.h"
#include "base/err.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/model_file.h"
#include "file/safetensors.h"
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

static struct model_file *open_model(const char *path)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	if (model_file_open(path, &f, &e) < 0)
		fail_msg("%s", e.msg);
	return f;
}

static void test_blocks(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int type;
	} rows[] = { { "f16", GGML_F16 },   { "bf16", GGML_BF16 }, { "q4_0", GGML_Q4_0 },
		     { "q4_1", GGML_Q4_1 }, { "q5_0", GGML_Q5_0 }, { "q5_1", GGML_Q5_1 },
		     { "q8_0", GGML_Q8_0 }, { "q4_k", GGML_Q4_K }, { "q5_k", GGML_Q5_K },
		     { "q6_k", GGML_Q6_K } };
	struct err e = { 0 };
	struct st_file *g = NULL;
	assert_int_equal(st_open(repository("tests/golden/file/blocks.safetensors"), &g, &e), 0);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char key[64];
		int block, bytes;
		const char *name;
		snprintf(key, sizeof key, "%s.packed", rows[i].name);
		const struct st_tensor *packed = st_find(g, key);
		snprintf(key, sizeof key, "%s.f32", rows[i].name);
		const struct st_tensor *want = st_find(g, key);
		assert_true(ggml_type_info(rows[i].type, &block, &bytes, &name));
		assert_int_equal(packed->bytes / (uint64_t)bytes * (uint64_t)block, want->count);
		float *x = malloc(want->bytes);
		assert_int_equal(ggml_dequantize(rows[i].type, packed->data, x, want->count, &e),
				 0);
		for (uint64_t k = 0; k < want->count; k++) {
			float y;
			memcpy(&y, (const char *)want->data + 4 * k, 4);
			if (memcmp(&x[k], &y, 4) != 0 && !(isnan(x[k]) && isnan(y)))
				fail_msg("%s[%llu] is %.9g, must be %.9g", name,
					 (unsigned long long)k, x[k], y);
		}
		print_message("# %s: %llu numbers identical\n", name,
			      (unsigned long long)want->count);
		if (block > 1)
			assert_int_equal(ggml_dequantize(rows[i].type, packed->data, x, 1, &e),
					 ERR_INTERNAL);
		free(x);
	}
	const struct st_tensor *x = st_find(g, "q8_0.source"), *q = st_find(g, "q8_0.quantized");
	uint8_t *out = malloc(q->bytes);
	float *src = malloc(x->bytes);
	memcpy(src, x->data, x->bytes);
	assert_int_equal(ggml_quantize(GGML_Q8_0, src, out, x->count, &e), 0);
	assert_memory_equal(out, q->data, q->bytes);
	src[5] = NAN;
	assert_int_equal(ggml_quantize(GGML_Q8_0, src, out, x->count, &e), ERR_INPUT);
	src[5] = -1e9f;
	assert_int_equal(ggml_quantize(GGML_Q8_0, src, out, x->count, &e), ERR_INPUT);
	free(src), free(out);
	assert_int_equal(ggml_dequantize(10, NULL, NULL, 0, &e), ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "Q2_K"));
	assert_int_equal(ggml_dequantize(-1, NULL, NULL, 0, &e), ERR_UNSUPPORTED);
	assert_int_equal(ggml_dequantize(1 << 30, NULL, NULL, 0, &e), ERR_UNSUPPORTED);
	st_close(g);
}

static double squared_error(int type, const void *packed, const float *x, uint64_t n)
{
	struct err e = { 0 };
	double sum = 0;
	float *y = malloc(n * 4);
	assert_int_equal(ggml_dequantize(type, packed, y, n, &e), 0);
	for (uint64_t i = 0; i < n; i++)
		sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
	free(y);
	return sum;
}

/* Blocks of 32 have exactly the bytes that the package gguf writes. Blocks of 256 allow several
 * results: ours are no worse than llama.cpp's, over all rows and in every one. */
static void test_quantized(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int type;
		bool equal;
	} rows[] = { { "q4_0", GGML_Q4_0, true },  { "q4_1", GGML_Q4_1, true },
		     { "q5_0", GGML_Q5_0, true },  { "q5_1", GGML_Q5_1, true },
		     { "q8_0", GGML_Q8_0, true },  { "q4_k", GGML_Q4_K, false },
		     { "q5_k", GGML_Q5_K, false }, { "q6_k", GGML_Q6_K, false } };
	struct err e = { 0 };
	struct st_file *g = NULL;
	assert_int_equal(st_open(repository("tests/golden/file/quants.safetensors"), &g, &e), 0);
	const struct st_tensor *source = st_find(g, "source");
	float *x = malloc(source->bytes);
	memcpy(x, source->data, source->bytes);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char key[64];
		snprintf(key, sizeof key, "%s.packed", rows[i].name);
		const struct st_tensor *want = st_find(g, key);
		uint8_t *out = malloc(want->bytes);
		assert_int_equal(ggml_quantize(rows[i].type, x, out, source->count, &e), 0);
		if (rows[i].equal) {
			assert_memory_equal(out, want->data, want->bytes);
			print_message("# %s: identical\n", rows[i].name);
		} else {
			uint64_t one = want->bytes / (uint64_t)source->shape[0];
			double ours = squared_error(rows[i].type, out, x, source->count),
			       theirs = squared_error(rows[i].type, want->data, x, source->count),
			       worst = 0;
			for (int64_t r = 0; r < source->shape[0]; r++) {
				const float *v = x + 256 * r;
				double a = squared_error(rows[i].type, out + (uint64_t)r * one, v,
							 256),
				       b = squared_error(rows[i].type,
							 (const uint8_t *)want->data +
								 (uint64_t)r * one,
							 v, 256);
				worst = fmax(worst, b > 1e-12 ? a / b : a > 1e-9 ? 99 : 0);
			}
			print_message("# %s: squared error %.4g of llama.cpp's, in one row at "
				      "most %.3g\n",
				      rows[i].name, ours / theirs, worst);
			assert_true(ours <= 1.05 * theirs && worst <= 1.3);
		}
		x[300] = NAN;
		assert_int_equal(ggml_quantize(rows[i].type, x, out, source->count, &e), ERR_INPUT);
		x[300] = 3e38f;
		assert_int_equal(ggml_quantize(rows[i].type, x, out, source->count, &e), ERR_INPUT);
		memcpy(x, source->data, source->bytes);
		free(out);
	}
	free(x);
	st_close(g);
}

/* Every tensor of the GGUF equals the one of the folder, read in pieces of several sizes. */
static void same_model(const char *gguf, const char *folder)
{
	struct err e = { 0 };
	struct model_file *a = open_model(gguf), *b = open_model(folder);
	float worst = 0;
	assert_string_equal(model_file_format(a), "gguf");
	for (size_t i = 0; i < model_file_count(b); i++) {
		const struct model_tensor *y = model_file_tensor(b, i),
					  *x = model_file_find(a, y->name);
		if (!x)
			fail_msg("%s has no '%s'", gguf, y->name);
		assert_int_equal(x->ndim, y->ndim);
		for (int d = 0; d < x->ndim; d++)
			assert_int_equal(x->shape[d], y->shape[d]);
		float *p = malloc(x->count * 4), *q = malloc(x->count * 4);
		uint64_t row = x->count / (uint64_t)x->shape[0];
		assert_int_equal(model_file_read_f32(b, y, 0, y->shape[0], q, &e), 0);
		for (int64_t step = 1; step < 50; step += 12) {
			memset(p, 255, x->count * 4);
			for (int64_t r = 0; r < x->shape[0]; r += step)
				assert_int_equal(model_file_read_f32(a, x, r,
								     x->shape[0] - r < step
									     ? x->shape[0] - r
									     : step,
								     p + (uint64_t)r * row, &e),
						 0);
			for (uint64_t k = 0; k < x->count; k++) {
				float d = fabsf(p[k] - q[k]);
				worst = d > worst ? d : worst;
				if (!(d <= 0))
					fail_msg("%s: %s[%llu] is %g, must be %g", gguf, x->name,
						 (unsigned long long)k, p[k], q[k]);
			}
		}
		model_file_drop(a, x);
		free(p), free(q);
	}
	print_message("# %s: %zu tensors, largest difference %g\n", gguf, model_file_count(a),
		      (double)worst);
	assert_int_equal(model_file_count(a), model_file_count(b));
	model_file_close(a);
	model_file_close(b);
}

static void same_key(const json_t *a, const json_t *b, const char *key)
{
	const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
	if (!y)
		return;
	bool ok = json_is_number(x) && json_is_number(y)
			  ? json_number_value(x) == json_number_value(y)
			  : json_equal(x, y);
	if (!ok)
		fail_msg("'%s' differs: %g and %g", key, json_number_value(x),
			 json_number_value(y));
}

static void test_models(void **state)
{
	(void)state;
	struct err e = { 0 };
	static const char *const keys[] = { "hidden_size",         "intermediate_size",
					    "num_hidden_layers",   "num_attention_heads",
					    "num_key_value_heads", "head_dim",
					    "rms_norm_eps",        "rope_theta",
					    "vocab_size",          "max_position_embeddings",
					    "tie_word_embeddings", "model_type",
					    "hidden_act",          "attention_bias" };
	same_model(repository("tests/golden/models/smollm2-f32.gguf"),
		   repository("tests/golden/models/smollm2"));
	same_model(repository("tests/golden/models/llama31-f16.gguf"),
		   repository("tests/golden/models/llama31"));
	struct model_file *a = open_model(repository("tests/golden/models/llama31-f16.gguf")),
			  *b = open_model(repository("tests/golden/models/llama31"));
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		same_key(model_file_config(a), model_file_config(b), keys[i]);
	const json_t *scaling = json_object_get(model_file_config(a), "rope_scaling");
	assert_string_equal(json_string_value(json_object_get(scaling, "rope_type")),
			    "gguf_factors");
	const json_t *factors = json_object_get(scaling, "factors");
	assert_int_equal(json_array_size(factors), 16);
	assert_true(json_number_value(json_array_get(factors, 0)) == 1.0);
	assert_true(json_number_value(json_array_get(factors, 15)) == 8.0);
	const json_t *v = model_file_gguf_vocab(a);
	assert_string_equal(json_string_value(json_object_get(v, "tokenizer.ggml.model")), "gpt2");
	assert_int_equal(json_array_size(json_object_get(v, "tokenizer.ggml.tokens")), 271);
	assert_true(json_is_array(json_object_get(v, "tokenizer.ggml.merges")));
	const void *raw;
	assert_int_equal(
		model_file_raw(a, model_file_find(a, "model.layers.0.self_attn.q_proj.weight"),
			       &raw, &e),
		ERR_UNSUPPORTED);
	assert_int_equal(
		model_file_raw(a, model_file_find(a, "model.layers.0.self_attn.v_proj.weight"),
			       &raw, &e),
		0);
	model_file_close(a);
	model_file_close(b);
}

/* A GGUF made by hand. */
static void u32(struct buf *b, uint32_t v) { buf_add(b, &v, 4); }
static void u64(struct buf *b, uint64_t v) { buf_add(b, &v, 8); }
static void str(struct buf *b, const char *s)
{
	u64(b, strlen(s));
	buf_adds(b, s);
}
static void head(struct buf *b, uint32_t version, uint64_t tensors, uint64_t pairs)
{
	buf_reset(b);
	buf_adds(b, "GGUF");
	u32(b, version);
	u64(b, tensors);
	u64(b, pairs);
}
static void pair(struct buf *b, const char *key, uint32_t kind, uint32_t v)
{
	str(b, key);
	u32(b, kind);
	u32(b, v);
}
static void info(struct buf *b, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type,
		 uint64_t offset)
{
	str(b, name);
	u32(b, 2);
	u64(b, ne0);
	u64(b, ne1);
	u32(b, type);
	u64(b, offset);
}
static void data(struct buf *b, size_t n)
{
	while (b->n % 32)
		buf_addc(b, 0);
	for (size_t i = 0; i < n; i++)
		buf_addc(b, 0);
}

static void check(struct buf *b, int code, const char *word)
{
	struct err e = { 0 };
	struct gguf g = { 0 };
	const char *p = scratch("made.gguf");
	assert_int_equal(buf_ok(b, &e), 0);
	scratch_write(p, b->p, b->n);
	int rc = gguf_open(p, &g, &e);
	print_message("# %s\n", rc < 0 ? e.msg : "good");
	assert_int_equal(rc, code);
	if (!rc)
		gguf_close(&g);
	else if (!strstr(e.msg, word))
		fail_msg("'%s' does not mention '%s'", e.msg, word);
}

static void test_refused(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	head(&b, 3, 1, 1);
	pair(&b, "general.alignment", GGUF_U32, 32);
	info(&b, "t", 32, 2, GGML_Q4_0, 0);
	data(&b, 36);
	check(&b, 0, "");
	b.n--;
	check(&b, ERR_INPUT, "truncated");
	for (size_t n = 0; n + 1 < b.n; n += 5) { /* cut off at many places */
		struct buf cut = BUF_INIT;
		buf_add(&cut, b.p, n);
		check(&cut, ERR_INPUT, "");
		buf_release(&cut);
	}
	head(&b, 2, 0, 0);
	check(&b, 0, "");
	head(&b, 1, 0, 0);
	check(&b, ERR_UNSUPPORTED, "version 1");
	head(&b, 0x03000000, 0, 0);
	check(&b, ERR_UNSUPPORTED, "big-endian");
	head(&b, 3, UINT64_MAX, 0);
	check(&b, ERR_INPUT, "do not fit");
	head(&b, 3, 0, UINT64_MAX / 2);
	check(&b, ERR_INPUT, "do not fit");
	head(&b, 3, 0, 1);
	u64(&b, UINT64_MAX);
	data(&b, 64);
	check(&b, ERR_INPUT, "truncated");
	head(&b, 3, 0, 1);
	pair(&b, "k", 13, 0);
	check(&b, ERR_INPUT, "unknown kind");
	head(&b, 3, 0, 1);
	str(&b, "k");
	u32(&b, GGUF_ARRAY);
	u32(&b, GGUF_STR);
	u64(&b, UINT64_MAX / 8);
	data(&b, 64);
	check(&b, ERR_INPUT, "truncated");
	head(&b, 3, 0, 1);
	str(&b, "k");
	u32(&b, GGUF_ARRAY);
	u32(&b, GGUF_U64);
	u64(&b, UINT64_MAX / 8 + 2); /* times 8 it would wrap to 8 */
	data(&b, 64);
	check(&b, ERR_INPUT, "truncated");
	head(&b, 3, 0, 1);
	str(&b, "k");
	u32(&b, GGUF_ARRAY);
	u32(&b, GGUF_ARRAY);
	u64(&b, 1);
	data(&b, 64);
	check(&b, ERR_INPUT, "unknown kind");
	head(&b, 3, 0, 2);
	pair(&b, "k", GGUF_U32, 0);
	pair(&b, "k", GGUF_U32, 1);
	check(&b, ERR_INPUT, "duplicate");
	head(&b, 3, 0, 1);
	pair(&b, "general.alignment", GGUF_U32, 0);
	check(&b, ERR_INPUT, "alignment");
	head(&b, 3, 0, 1);
	pair(&b, "general.alignment", GGUF_U32, 48);
	check(&b, ERR_INPUT, "alignment");
	static const struct {
		uint64_t ne0, ne1;
		uint32_t type;
		uint64_t offset;
		int code;
		const char *word;
	} t[] = {
		{ 31, 2, GGML_Q4_0, 0, ERR_INPUT, "not a multiple of a block" },
		{ 32, 2, 10, 0, ERR_UNSUPPORTED, "Q2_K" },
		{ 32, 2, 0xffffffff, 0, ERR_UNSUPPORTED, "unknown" },
		{ 0, 2, GGML_F32, 0, ERR_INPUT, "shape" },
		{ UINT64_MAX, 2, GGML_F32, 0, ERR_INPUT, "shape" },
		{ 1ull << 40, 1ull << 40, GGML_F32, 0, ERR_INPUT, "shape" },
		{ 1ull << 31, 1ull << 31, GGML_F32, 0, ERR_INPUT, "" },
		{ 32, 2, GGML_Q4_0, 16, ERR_INPUT, "aligned" },
		{ 32, 2, GGML_Q4_0, 64, ERR_INPUT, "truncated" },
		{ 32, 2, GGML_Q4_0, UINT64_MAX - 31, ERR_INPUT, "truncated" },
	};
	for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
		head(&b, 3, 1, 0);
		info(&b, "t", t[i].ne0, t[i].ne1, t[i].type, t[i].offset);
		data(&b, 64);
		check(&b, t[i].code, t[i].word);
	}
	head(&b, 3, 2, 0);
	info(&b, "t", 32, 2, GGML_Q4_0, 0);
	info(&b, "s", 32, 2, GGML_Q4_0, 32);
	data(&b, 128);
	check(&b, ERR_INPUT, "overlaps");
	head(&b, 3, 2, 0);
	info(&b, "t", 32, 2, GGML_Q4_0, 0);
	info(&b, "t", 32, 2, GGML_Q4_0, 64);
	data(&b, 128);
	check(&b, ERR_INPUT, "duplicate");
	head(&b, 3, 1, 0);
	str(&b, "t");
	u32(&b, 5);
	data(&b, 128);
	check(&b, ERR_INPUT, "5 dimensions");
	buf_release(&b);
}

/* A whole file that is well-formed, but not a model that can be used. */
static void refuse_model(struct buf *b, int code, const char *word)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	scratch_write(scratch("model.gguf"), b->p, b->n);
	int rc = model_file_open(scratch("model.gguf"), &f, &e);
	print_message("# %s\n", e.msg);
	assert_int_equal(rc, code);
	if (!strstr(e.msg, word))
		fail_msg("'%s' does not mention '%s'", e.msg, word);
}

/* A list of `n` bytes. */
static void list(struct buf *b, const char *key, uint32_t n)
{
	str(b, key);
	u32(b, GGUF_ARRAY);
	u32(b, GGUF_U8);
	u64(b, n);
	for (uint32_t i = 0; i < n; i++)
		buf_addc(b, 1);
}

static void model(struct buf *b, const char *arch, const char *extra, uint32_t kind, uint32_t value,
		  const char *tensor)
{
	float eps = 1e-5f;
	uint32_t bits;
	char key[64];
	memcpy(&bits, &eps, 4);
	head(b, 3, tensor ? 2 : 1, extra ? 8 : 7);
	str(b, "general.architecture");
	u32(b, GGUF_STR);
	str(b, arch);
#define KEY(name) (snprintf(key, sizeof key, "%s." name, arch), key)
	pair(b, KEY("embedding_length"), GGUF_U32, 8);
	pair(b, KEY("feed_forward_length"), GGUF_U32, 16);
	pair(b, KEY("block_count"), GGUF_U32, 1);
	pair(b, KEY("context_length"), GGUF_U32, 64);
	pair(b, KEY("attention.head_count"), GGUF_U32, 2);
	pair(b, KEY("attention.layer_norm_rms_epsilon"), GGUF_F32, bits);
	if (extra && kind == GGUF_ARRAY)
		list(b, extra, value);
	else if (extra)
		pair(b, extra, kind, value);
	info(b, "token_embd.weight", 8, 4, GGML_F32, 0);
	if (tensor)
		info(b, tensor, 8, 8, GGML_F32, 128);
	data(b, 128 + 256);
}

/* Tensors of 1,024 experts each, in a few bytes. */
static void many_experts(struct buf *b, int n)
{
	model(b, "llama", "llama.expert_count", GGUF_U32, 1024, NULL);
	b->n -= 384; /* the data, and what goes before it */
	while (memcmp(b->p + b->n, "token_embd", 10) != 0)
		b->n--;
	b->n -= 8;
	const uint64_t tensors = 1 + (uint64_t)n, pairs = 9;
	memcpy(b->p + 8, &tensors, 8);
	memcpy(b->p + 16, &pairs, 8);
	pair(b, "llama.expert_used_count", GGUF_U32, 2);
	info(b, "token_embd.weight", 8, 4, GGML_F32, 0);
	for (int i = 0; i < n; i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", i);
		info(b, name, 1, 1024, GGML_F32, 128 + 4096 * (uint64_t)i);
	}
	data(b, 128 + 4096 * (size_t)n);
}

static void test_models_refused(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	model(&b, "llama", NULL, 0, 0, "blk.0.attn_q.weight");
	scratch_write(scratch("model.gguf"), b.p, b.n);
	struct model_file *f = open_model(scratch("model.gguf"));
	float x[64];
	assert_true(json_number_value(json_object_get(model_file_config(f), "rms_norm_eps")) ==
		    1e-5);
	assert_int_equal(
		model_file_read_f32(f, model_file_find(f, "model.layers.0.self_attn.q_proj.weight"),
				    0, 8, x, &e),
		0);
	assert_null(model_file_gguf_vocab(f));
	model_file_close(f);
	model(&b, "mamba", NULL, 0, 0, NULL);
	refuse_model(&b, ERR_UNSUPPORTED, "mamba");
	model(&b, "llama", "llama.expert_count", GGUF_U32, 8, NULL);
	refuse_model(&b, ERR_INPUT, "'llama.expert_used_count' is missing");
	model(&b, "llama", "llama.expert_shared_count", GGUF_U32, 1, NULL);
	refuse_model(&b, ERR_UNSUPPORTED, "expert_shared_count");
	model(&b, "llama", "llama.attention.head_count_kv", GGUF_U32, 3, NULL);
	refuse_model(&b, ERR_INPUT, "not a multiple of 3");
	model(&b, "llama", "llama.rope.dimension_count", GGUF_U32, 2, NULL);
	refuse_model(&b, ERR_UNSUPPORTED, "rotated");
	model(&b, "llama", "llama.attention.key_length", GGUF_U32, 3, NULL);
	refuse_model(&b, ERR_UNSUPPORTED, "width 3");
	model(&b, "llama", "llama.attention.key_length", GGUF_U32, 6, "blk.0.attn_q.weight");
	refuse_model(&b, ERR_INPUT, "head width");
	model(&b, "llama", "llama.rope.freq_base", GGUF_F32, 0x7fc00000, NULL);
	refuse_model(&b, ERR_INPUT, "freq_base");
	model(&b, "llama", NULL, 0, 0, "blk.1.attn_q.weight");
	refuse_model(&b, ERR_UNSUPPORTED, "blk.1.attn_q.weight");
	model(&b, "llama", NULL, 0, 0, "blk.0.ffn_gate_exps.weight");
	refuse_model(&b, ERR_UNSUPPORTED, "ffn_gate_exps");
	model(&b, "llama", "tokenizer.ggml.bos_token_id", GGUF_ARRAY, 4, NULL);
	refuse_model(&b, ERR_INPUT, "must be one value, not a list");
	model(&b, "llama", "tokenizer.ggml.x", GGUF_ARRAY, 14000000, NULL);
	refuse_model(&b, ERR_INPUT, "too many values");
	many_experts(&b, 520);
	refuse_model(&b, ERR_INPUT, "521 tensors hold those of 532481 experts, 524288 are allowed");
	model(&b, "qwen2", "x", GGUF_U32, 0, "blk.00.attn_q.weight");
	refuse_model(&b, ERR_UNSUPPORTED, "blk.00");
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks),         cmocka_unit_test(test_quantized),
		cmocka_unit_test(test_models),         cmocka_unit_test(test_refused),
		cmocka_unit_test(test_models_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
