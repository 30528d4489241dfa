/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_model.c - model folders: single and sharded, NF4, odd alignment, what belongs to them,
 * and folders that are refused. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/gguf_write.h"
#include "file/llama3_rope.h"
#include "file/atomic.h"
#include "file/model_file.h"
#include "file/text_part.h"
#include "file/safetensors.h"
#include "runtime/model_folder.h"
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
#include <unistd.h>

static struct model_file *open_model(const char *path)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	if (model_file_open(path, &f, &e) < 0)
		fail_msg("%s", e.msg);
	return f;
}

static void refuse(const char *path, int code, const char *word)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	int rc = model_file_open(path, &f, &e);
	print_message("# %s\n", e.msg);
	assert_int_equal(rc, code);
	if (!strstr(e.msg, word))
		fail_msg("'%s' does not mention '%s'", e.msg, word);
}

static float *read_all(struct model_file *f, const struct model_tensor *t, int64_t step)
{
	struct err e = { 0 };
	float *x = malloc(t->count * sizeof *x + 1);
	uint64_t rows = t->ndim ? (uint64_t)t->shape[0] : 1, row = t->count / rows;
	for (uint64_t r = 0; r < rows; r += (uint64_t)step) {
		int64_t n = rows - r < (uint64_t)step ? (int64_t)(rows - r) : step;
		if (model_file_read_f32(f, t, (int64_t)r, n, x + r * row, &e) < 0)
			fail_msg("%s", e.msg);
	}
	return x;
}

static void test_single(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct model_file *f = open_model(repository("tests/golden/models/qwen2"));
	assert_string_equal(model_file_format(f), "safetensors");
	assert_string_equal(json_string_value(json_object_get(model_file_config(f), "model_type")),
			    "qwen2");
	assert_null(model_file_gguf_vocab(f));
	const struct model_tensor *t = model_file_find(f, "model.layers.0.self_attn.q_proj.weight");
	assert_non_null(t);
	assert_int_equal(t->kind, STORE_PLAIN);
	const void *raw = NULL;
	assert_int_equal(model_file_raw(f, t, &raw, &e), 0);
	float *x = read_all(f, t, 3), *y = read_all(f, t, t->shape[0]), *z = malloc(t->count * 4);
	dtype_to_f32(t->dtype, raw, z, t->count);
	assert_memory_equal(x, y, t->count * 4);
	assert_memory_equal(x, z, t->count * 4);
	model_file_drop(f, t);
	assert_memory_equal(x, z, t->count * 4);
	assert_int_equal(model_file_read_f32(f, t, t->shape[0], 1, z, &e), ERR_INTERNAL);
	assert_int_equal(model_file_read_f32(f, t, -1, 1, z, &e), ERR_INTERNAL);
	assert_int_equal(model_file_read_f32(f, t, 1, INT64_MAX, z, &e), ERR_INTERNAL);
	struct nf4_view v;
	assert_int_equal(model_file_nf4(f, t, &v, &e), ERR_UNSUPPORTED);
	free(x), free(y), free(z);
	model_file_close(f);
	/* the same by the name of its file */
	f = open_model(repository("tests/golden/models/qwen2/model.safetensors"));
	assert_non_null(model_file_find(f, "model.layers.0.self_attn.q_proj.weight"));
	model_file_close(f);
}

static void test_sharded(void **state)
{
	(void)state;
	struct model_file *f = open_model(repository("tests/golden/models/smollm2"));
	assert_non_null(strstr(model_file_tokenizer_path(f), "tokenizer.json"));
	assert_true(json_is_object(model_file_tokenizer_config(f)));
	size_t n = 0, layers = (size_t)json_integer_value(
			      json_object_get(model_file_config(f), "num_hidden_layers"));
	for (size_t i = 0; i < model_file_count(f); i++)
		n += strstr(model_file_tensor(f, i)->name, "q_proj.weight") != NULL;
	assert_int_equal(n, layers);
	assert_null(model_file_tensor(f, model_file_count(f)));
	model_file_close(f);
}

/* 4-bit weights against the formula, element by element and from every parity of the first row. */
static void check_nf4(const char *path, bool nested)
{
	struct err e = { 0 };
	struct model_file *f = open_model(path);
	size_t seen = 0;
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		struct nf4_view v = { 0 };
		const void *raw;
		if (strstr(t->name, "quant") || strstr(t->name, "absmax"))
			fail_msg("'%s' is part of another tensor", t->name);
		if (t->kind != STORE_NF4)
			continue;
		seen++;
		assert_int_equal(model_file_nf4(f, t, &v, &e), 0);
		assert_int_equal(model_file_raw(f, t, &raw, &e), ERR_UNSUPPORTED);
		assert_int_equal(v.absmax8 != NULL, nested);
		assert_int_equal(v.absmax == NULL, nested);
		assert_int_equal(v.blocksize, 64);
		float *x = read_all(f, t, 1), *y = read_all(f, t, 7);
		for (uint64_t k = 0; k < t->count; k++) {
			uint64_t b = k / 64;
			float scale = nested ? v.code2[v.absmax8[b]] * v.absmax2[b / 256] + v.offset
					     : v.absmax[b];
			float want =
				v.code[k % 2 ? v.packed[k / 2] & 15 : v.packed[k / 2] >> 4] * scale;
			if (x[k] != want || y[k] != want)
				fail_msg("%s[%llu] is %g, %g, must be %g", t->name,
					 (unsigned long long)k, x[k], y[k], want);
		}
		free(x), free(y);
		model_file_drop(f, t);
	}
	assert_true(seen >= 14);
	model_file_close(f);
}

static void test_nf4(void **state)
{
	(void)state;
	check_nf4(repository("tests/golden/models/llama2-nf4"), false);
	check_nf4(repository("tests/golden/models/smollm2-nf4-dq"), true);
}

/* The same numbers as bitsandbytes, over odd shapes: its golden weights wrapped into a model's
 * folder. */
static int from_spec(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		     struct err *e)
{
	(void)ctx, (void)e;
	memcpy(dst, (const char *)t->user + off, n);
	return 0;
}

static void test_bitsandbytes(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct st_file *g = NULL;
	assert_int_equal(st_open(repository("tests/golden/nf4/nf4.safetensors"), &g, &e), 0);
	struct st_spec spec[512];
	char names[512][128], states[64][512];
	size_t n = 0, ns = 0, cases = 0;
	for (size_t i = 0; i < st_count(g); i++) {
		const struct st_tensor *w = st_get(g, i);
		const char *tail = strstr(w->name, ".weight");
		if (!tail)
			continue;
		for (int dq = 0; dq < 2; dq++) {
			const char *parts[][2] = { { "packed", "" },
						   { dq ? "dq.absmax" : "absmax", ".absmax" },
						   { "code", ".quant_map" },
						   { "dq.nested_absmax", ".nested_absmax" },
						   { "nested_quant_map", ".nested_quant_map" } };
			char key[160];
			for (size_t k = 0; k < (dq ? 5 : 3); k++) {
				if (k == 2 || k == 4)
					snprintf(key, sizeof key, "%s", parts[k][0]);
				else
					snprintf(key, sizeof key, "%.*s.%s", (int)(tail - w->name),
						 w->name, parts[k][0]);
				const struct st_tensor *p = st_find(g, key);
				assert_non_null(p);
				snprintf(names[n], sizeof names[n], "%.*s.%d%s",
					 (int)(tail - w->name), w->name, dq, parts[k][1]);
				spec[n] = (struct st_spec){
					names[n], p->dtype, p->ndim, { 0 }, (void *)p->data
				};
				memcpy(spec[n].shape, p->shape, sizeof p->shape);
				n++;
			}
			float offset = 0;
			snprintf(key, sizeof key, "%.*s.dq.offset", (int)(tail - w->name), w->name);
			memcpy(&offset, st_find(g, key)->data, 4);
			snprintf(names[n], sizeof names[n], "%.*s.%d.quant_state.bitsandbytes__nf4",
				 (int)(tail - w->name), w->name, dq);
			snprintf(states[ns], sizeof states[ns],
				 "{\"quant_type\":\"nf4\",\"blocksize\":64,\"dtype\":\"float32\","
				 "\"shape\":[%lld,%lld]%s%.17g%s}",
				 (long long)w->shape[0], (long long)w->shape[1],
				 dq ? ",\"nested_blocksize\":256,\"nested_dtype\":\"float32\","
				      "\"nested_offset\":"
				    : ",\"x\":",
				 (double)offset, "");
			spec[n] = (struct st_spec){
				names[n], DT_U8, 1, { (int64_t)strlen(states[ns]) }, states[ns]
			};
			n++, ns++;
			assert_true(n < 500 && ns < 64);
		}
		cases++;
	}
	scratch_text(scratch("bnb/config.json"), "{}");
	assert_int_equal(
		st_write(scratch("bnb/model.safetensors"), spec, n, NULL, from_spec, NULL, &e), 0);
	struct model_file *f = open_model(scratch("bnb"));
	assert_int_equal(model_file_count(f), 2 * cases);
	float worst = 0;
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		char key[160];
		size_t len = strlen(t->name);
		snprintf(key, sizeof key, "%.*s.%sf32", (int)len - 2, t->name,
			 t->name[len - 1] == '1' ? "dq." : "");
		const struct st_tensor *want = st_find(g, key);
		assert_non_null(want);
		float *x = read_all(f, t, 1);
		for (uint64_t k = 0; k < t->count; k++) {
			float y;
			memcpy(&y, (const char *)want->data + 4 * k, 4);
			float d = fabsf(x[k] - y);
			worst = d > worst ? d : worst;
			if (!(d <= 0))
				fail_msg("%s[%llu] is %.9g, bitsandbytes gives %.9g", t->name,
					 (unsigned long long)k, x[k], y);
		}
		free(x);
	}
	print_message("# %zu weights, largest difference to bitsandbytes %g\n", model_file_count(f),
		      (double)worst);
	model_file_close(f);
	st_close(g);
}

static void tensors(const char *path, const char *header, size_t n)
{
	struct buf b = BUF_INIT;
	for (int i = 0; i < 8; i++)
		buf_addc(&b, (char)(strlen(header) >> (8 * i)));
	buf_adds(&b, header);
	for (size_t i = 0; i < n; i++)
		buf_addc(&b, (char)i);
	scratch_write(path, b.p, b.n);
	buf_release(&b);
}

static void test_unaligned(void **state)
{
	(void)state;
	struct err e = { 0 };
	scratch_text(scratch("odd/config.json"), "{}");
	tensors(scratch("odd/model.safetensors"),
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"w\":{\"dtype\":"
		"\"F16\",\"shape\":[2,300],\"data_"
		"offsets\":[1,1201]}}",
		1201);
	struct model_file *f = open_model(scratch("odd"));
	const struct model_tensor *t = model_file_find(f, "w");
	const void *raw = NULL;
	float *x = read_all(f, t, 2);
	for (uint32_t i = 0; i < 600; i++) {
		uint16_t h = (uint16_t)((uint8_t)(2 * i + 1) | (uint8_t)(2 * i + 2) << 8);
		float want = f16_to_f32(h);
		assert_memory_equal(&x[i], &want, 4);
	}
	free(x);
	float y;
	int rc = model_file_raw(f, t, &raw, &e);
	assert_true(rc == 0 || rc == ERR_UNSUPPORTED); /* the header's length decides */
	assert_int_equal(model_file_read_f32(f, model_file_find(f, "a"), 0, 1, &y, &e),
			 ERR_UNSUPPORTED);
	model_file_close(f);
}

#define ONE "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void index_of(const char *dir, const char *map)
{
	scratch_text(scratch("%s/config.json", dir), "{}");
	tensors(scratch("%s/x.safetensors", dir), ONE, 4);
	scratch_text(scratch("%s/model.safetensors.index.json", dir),
		     "{\"metadata\":{\"total_size\":4},\"weight_map\":%s}", map);
}

static void test_refused(void **state)
{
	(void)state;
	refuse(scratch("nothing"), ERR_IO, "nothing");
	scratch_text(scratch("bare/readme"), "x");
	refuse(scratch("bare"), ERR_INPUT, "config.json");
	refuse(scratch("bare/readme"), ERR_INPUT, "not a model");
	scratch_text(scratch("conf/config.json"), "{}");
	refuse(scratch("conf"), ERR_INPUT, "model.safetensors.index.json");
	scratch_text(scratch("conf/pytorch_model.bin"), "x");
	refuse(scratch("conf"), ERR_INPUT, "pickled");
	scratch_text(scratch("conf/adapter_model.safetensors"), "x");
	refuse(scratch("conf"), ERR_INPUT, "adapter");
	scratch_text(scratch("list/config.json"), "[]");
	refuse(scratch("list"), ERR_INPUT, "object");
	scratch_text(scratch("gptq/config.json"),
		     "{\"quantization_config\":{\"quant_method\":\"gptq\"}}");
	refuse(scratch("gptq"), ERR_UNSUPPORTED, "gptq");
	scratch_text(scratch("int8/config.json"), "{\"quantization_config\":{\"quant_method\":"
						  "\"bitsandbytes\",\"load_in_8bit\":true}}");
	refuse(scratch("int8"), ERR_UNSUPPORTED, "8bit");
	index_of("ok", "{\"a\":\"x.safetensors\"}");
	model_file_close(open_model(scratch("ok")));
	index_of("i1", "{\"a\":\"../x.safetensors\"}");
	refuse(scratch("i1"), ERR_INPUT, "outside the folder");
	index_of("i2", "{\"a\":\"/etc/passwd\"}");
	refuse(scratch("i2"), ERR_INPUT, "outside the folder");
	index_of("i3", "{\"a\":\"..\"}");
	refuse(scratch("i3"), ERR_INPUT, "outside the folder");
	index_of("i4", "{\"a\":\"y.safetensors\"}");
	refuse(scratch("i4"), ERR_IO, "y.safetensors");
	index_of("i5", "{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\"}");
	refuse(scratch("i5"), ERR_INPUT, "'b'");
	index_of("i6", "{}");
	refuse(scratch("i6"), ERR_INPUT, "weight_map");
	index_of("i7", "{\"a\":7}");
	refuse(scratch("i7"), ERR_INPUT, "names no file");
	index_of("i8", "[\"x.safetensors\"]");
	refuse(scratch("i8"), ERR_INPUT, "weight_map");
}

/* A 4-bit weight "w" of 2x32 in one block of 64, with these texts in place of the right ones. */
static void nf4_case(const char *type, const char *json, const char *absmax, size_t absmax_bytes,
		     int code, const char *word)
{
	char header[2048];
	size_t at = 32 + 64 + absmax_bytes;
	snprintf(header, sizeof header,
		 "{\"w\":{\"dtype\":\"U8\",\"shape\":[32,1],\"data_offsets\":[0,32]},\"w.quant_"
		 "map\":{\"dtype\":\"F32\",\"shape\":["
		 "16],\"data_offsets\":[32,96]},"
		 "\"w.absmax\":{\"dtype\":%s,\"data_offsets\":[96,%zu]},"
		 "\"w.quant_state.bitsandbytes__%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_"
		 "offsets\":[%zu,%zu]}}",
		 absmax, at, type, strlen(json), at, at + strlen(json));
	struct buf b = BUF_INIT;
	for (int i = 0; i < 8; i++)
		buf_addc(&b, (char)(strlen(header) >> (8 * i)));
	buf_adds(&b, header);
	for (size_t i = 0; i < at; i++)
		buf_addc(&b, 0);
	buf_adds(&b, json);
	scratch_text(scratch("q/config.json"), "{}");
	scratch_write(scratch("q/model.safetensors"), b.p, b.n);
	buf_release(&b);
	if (code)
		refuse(scratch("q"), code, word);
	else
		model_file_close(open_model(scratch("q")));
}

#define Q(type, block, dtype, shape)                                                               \
	"{\"quant_type\":\"" type "\",\"blocksize\":" block ",\"dtype\":\"" dtype                  \
	"\",\"shape\":" shape "}"

static void test_nf4_refused(void **state)
{
	(void)state;
	const char *one = "\"F32\",\"shape\":[1]", *u8 = "\"U8\",\"shape\":[4]",
		   *two = "\"F32\",\"shape\":[2]";
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[2,32]"), one, 4, 0, NULL);
	nf4_case("fp4", Q("fp4", "64", "bfloat16", "[2,32]"), one, 4, ERR_UNSUPPORTED, "fp4");
	nf4_case("nf4", Q("fp4", "64", "bfloat16", "[2,32]"), one, 4, ERR_UNSUPPORTED, "fp4");
	nf4_case("nf4", Q("nf4", "63", "bfloat16", "[2,32]"), one, 4, ERR_INPUT, "blocksize");
	nf4_case("nf4", Q("nf4", "0", "bfloat16", "[2,32]"), one, 4, ERR_INPUT, "blocksize");
	nf4_case("nf4", Q("nf4", "64", "float8", "[2,32]"), one, 4, ERR_UNSUPPORTED, "float8");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[2,33]"), one, 4, ERR_INPUT, "needs 33");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[4611686018427387904,8]"), one, 4, ERR_INPUT,
		 "shape");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[]"), one, 4, ERR_INPUT, "shape");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[-2,-32]"), one, 4, ERR_INPUT, "shape");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[2,32]"), u8, 4, ERR_INPUT, "absmax");
	nf4_case("nf4", Q("nf4", "64", "bfloat16", "[2,32]"), two, 8, ERR_INPUT, "absmax");
	nf4_case("nf4", Q("nf4", "32", "bfloat16", "[2,32]"), one, 4, ERR_INPUT, "absmax");
	nf4_case("nf4", "{", one, 4, ERR_INPUT, "JSON");
	nf4_case("nf4", "[]", one, 4, ERR_INPUT, "quant_type");
}

/* The config.json made from a GGUF has the words that transformers' own has: llama.cpp's converter
 * refuses a folder without a class, and transformers takes GLM's experts to be 128 under any other
 * name. */
static void test_words_of_transformers(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {
		{ "smollm2-f32.gguf", "smollm2" },
		{ "gemma.gguf", "gemma" },
		{ "gemma2-gguf.gguf", "gemma2-gguf" },
		{ "gemma3-gguf.gguf", "gemma3-gguf" },
		{ "glm4.gguf", "glm4" },
		{ "glm4-moe.gguf", "glm4-moe" },
		{ "gpt-oss.gguf", "gpt-oss" },
		{ "granite.gguf", "granite" },
		{ "mixtral.gguf", "mixtral" },
		{ "olmo2.gguf", "olmo2" },
		{ "olmo3.gguf", "olmo3" },
		{ "exaone4-gguf.gguf", "exaone4-gguf" },
		{ "ernie4_5.gguf", "ernie4_5" },
		{ "ernie4_5-moe.gguf", "ernie4_5-moe" },
		{ "qwen3_5-gguf.gguf", "qwen3_5-gguf" },
		{ "seed_oss.gguf", "seed_oss" },
		{ "lfm2.gguf", "lfm2" },
		{ "lfm2-moe.gguf", "lfm2-moe" },
		{ "qwen3_5-moe-gguf.gguf", "qwen3_5-moe-gguf" },
		{ "olmoe.gguf", "olmoe" },
		{ "phi3.gguf", "phi3" },
		{ "phi4-mini.gguf", "phi4-mini" },
		{ "qwen2-moe.gguf", "qwen2-moe" },
		{ "qwen3-moe.gguf", "qwen3-moe" },
		{ "smollm3-gguf.gguf", "smollm3-gguf" },
	};
	static const char *const keys[] = { "architectures",
					    "model_type",
					    "n_routed_experts",
					    "num_local_experts",
					    "num_experts",
					    "num_experts_per_tok",
					    "moe_intermediate_size",
					    "shared_expert_intermediate_size",
					    "n_shared_experts",
					    "first_k_dense_replace",
					    "norm_topk_prob",
					    "use_qk_norm",
					    "original_max_position_embeddings",
					    "head_dim" };
	struct err e = { 0 };
	scratch_text(scratch("made/config.json"), "{}");
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		struct model_file *f =
			open_model(repository("tests/golden/models/%s", pairs[i][0]));
		/* most have no tokenizer, so neither has the folder */
		if (model_folder_write(f, scratch("made"), DT_F32, &e) < 0)
			fail_msg("%s", e.msg);
		model_file_close(f);
		const char *path = repository("tests/golden/models/%s/config.json", pairs[i][1]);
		json_t *want = json_load_file(path, 0, NULL),
		       *made = json_load_file(scratch("made/config.json"), 0, NULL);
		assert_non_null(json_object_get(want, "architectures"));
		for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
			if (json_object_get(want, keys[k]) &&
			    !json_is_null(json_object_get(want, keys[k])) &&
			    !json_equal(json_object_get(made, keys[k]),
					json_object_get(want, keys[k])))
				fail_msg("%s: '%s' is not as in %s", pairs[i][0], keys[k],
					 pairs[i][1]);
		/* without these transformers takes an id of another vocabulary, or fails */
		assert_non_null(json_object_get(made, "pad_token_id"));
		if (!strcmp(pairs[i][1], "exaone4-gguf"))
			assert_true(json_equal(json_object_get(made, "layer_types"),
					       json_object_get(want, "layer_types")));
		if (!strcmp(pairs[i][1], "phi4-mini"))
			assert_int_equal(json_object_size(json_object_get(made, "rope_scaling")),
					 json_object_size(json_object_get(want, "rope_scaling")));
		json_decref(made);
		json_decref(want);
	}
}

/* Llama 3.1's rope scaling, of which a GGUF has the numbers only, comes back. */
static void test_rope_of_llama3(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct model_file *f = open_model(repository("tests/golden/models/llama31-f16.gguf"));
	scratch_text(scratch("rope/config.json"), "{}");
	assert_int_equal(model_folder_check(f, &e), 0);
	assert_int_equal(model_folder_config(f, scratch("rope"), DT_F32, &e), 0);
	json_t *made = json_load_file(scratch("rope/config.json"), 0, NULL),
	       *want = json_load_file(repository("tests/golden/models/llama31/config.json"), 0,
				      NULL);
	assert_true(json_is_object(json_object_get(want, "rope_scaling")));
	assert_true(json_equal(json_object_get(made, "rope_scaling"),
			       json_object_get(want, "rope_scaling")));
	json_decref(made);
	json_decref(want);
	/* a number that does not follow from them: neither guessed nor written */
	json_t *config = (json_t *)model_file_config(f),
	       *all = json_object_get(json_object_get(config, "rope_scaling"), "factors");
	json_array_set_new(all, 1, json_real(json_number_value(json_array_get(all, 1)) * 1.01));
	assert_int_equal(model_folder_check(f, &e), ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "rope factors"));
	model_file_close(f);
	/* the numbers of the published models, as llama.cpp's converter computes them (float32) */
	static const struct {
		int rot;
		float factor;
	} published[] = { { 128, 8 } /* 3.1 8B, 70B, 405B; 3.3 */,
			  { 64, 32 } /* 3.2 1B */,
			  { 128, 32 } /* 3.2 3B */ };
	for (size_t k = 0; k < sizeof published / sizeof published[0]; k++) {
		const float factor = published[k].factor;
		json_t *list = json_array();
		for (int i = 0; i < published[k].rot; i += 2) {
			const float freq = 1 / powf(5e5f, (float)i / (float)published[k].rot),
				    wave = 2 * (float)M_PI / freq, smooth = (8192 / wave - 1) / 3;
			json_array_append_new(
				list,
				json_real((double)(wave < 2048   ? 1
						   : wave > 8192 ? factor
								 : 1 / ((1 - smooth) / factor +
									smooth))));
		}
		json_t *rope = llama3_rope_recover(list, 5e5);
		assert_non_null(rope);
		assert_true(json_number_value(json_object_get(rope, "factor")) == (double)factor);
		assert_int_equal(json_integer_value(
					 json_object_get(rope, "original_max_position_embeddings")),
				 8192);
		json_decref(rope);
		assert_null(llama3_rope_recover(list, 1e6));
		json_decref(list);
	}
	assert_null(llama3_rope_recover(NULL, 5e5));
}

static int from_model(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		      struct err *e)
{
	return model_file_read_f32(ctx, model_file_find(ctx, name), row0, rows, dst, e);
}

static void same_ends(const char *gguf, const char *want)
{
	struct err e = { 0 };
	struct model_file *f = open_model(gguf);
	scratch_text(scratch("ends/config.json"), "{}");
	if (model_folder_write(f, scratch("ends"), DT_F32, &e) < 0)
		fail_msg("%s", e.msg);
	model_file_close(f);
	json_t *made = json_load_file(scratch("ends/generation_config.json"), 0, NULL),
	       *ends = json_loads(want, JSON_DECODE_ANY, NULL);
	assert_true(json_equal(json_object_get(made, "eos_token_id"), ends));
	json_decref(made);
	json_decref(ends);
}

/* Where the template ends an answer with another token than the file's EOS, generation stops at
 * both. */
static void test_ends(void **state)
{
	(void)state;
	static const char *const beside[] = { "config.json",
					      "tokenizer.json",
					      "model.safetensors.index.json",
					      "model-00001-of-00003.safetensors",
					      "model-00002-of-00003.safetensors",
					      "model-00003-of-00003.safetensors" };
	const char *config = repository("tests/golden/models/smollm2/tokenizer_config.json");
	struct err e = { 0 };
	json_t *o = json_load_file(config, 0, NULL);
	json_object_set_new(o, "eos_token", json_string("<|endoftext|>"));
	char *text = json_dumps(o, 0);
	scratch_text(scratch("gpt/tokenizer_config.json"), "%s", text);
	for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
		char *from =
			realpath(repository("tests/golden/models/smollm2/%s", beside[i]), NULL);
		assert_int_equal(symlink(from, scratch("gpt/%s", beside[i])), 0);
		free(from);
	}
	struct model_file *f = open_model(scratch("gpt"));
	if (gguf_write_model(scratch("gpt.gguf"), f, GGUF_OUT_F32, from_model, f, &e) < 0)
		fail_msg("%s", e.msg);
	model_file_close(f);
	same_ends(scratch("gpt.gguf"), "[0, 2]");
	same_ends(repository("tests/golden/models/smollm2-f32.gguf"), "2");
	free(text);
	json_decref(o);
}

/* Workers in threads read one file: what is made of a matrix in MXFP4 for one of them stays when
 * another has dropped the tensor. */
static void test_views_of_mxfp4(void **state)
{
	static const char *const path[] = { "tests/golden/models/gpt-oss",
					    "tests/golden/models/gpt-oss.gguf" };
	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct err e = { 0 };
		struct nf4_view a, b;
		struct model_file *f = open_model(repository("%s", path[k]));
		const struct model_tensor *t =
			model_file_find(f, "model.layers.0.mlp.experts.1.up_proj.weight");
		assert_true(t && t->kind == STORE_NF4);
		const uint64_t bytes = t->count / 2;
		assert_int_equal(model_file_nf4(f, t, &a, &e), 0);
		assert_int_equal(model_file_nf4(f, t, &b, &e), 0);
		assert_true(a.memory && b.memory && a.memory != b.memory);
		model_file_drop(f, t);
		assert_memory_equal(a.packed, b.packed, bytes);
		mem_free(a.memory);
		model_file_close(f);
		uint64_t sum = 0;
		for (uint64_t i = 0; i < bytes; i++)
			sum += b.packed[i];
		assert_true(sum > 0);
		mem_free(b.memory);
	}
}

/* The configuration of a language model that has a model for pictures beside it. */
static void test_text_part(void **state)
{
	(void)state;
	struct err e = { 0 };
	json_t *whole = json_loads("{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],"
				   "\"text_config\":{\"hidden_size\":2560,\"eos_token_id\":1,"
				   "\"num_attention_heads\":16}}",
				   0, NULL),
	       *text = NULL;
	assert_int_equal(text_part_config(whole, "config.json", &text, &e), 1);
	static const struct {
		const char *key;
		int value;
	} want[] = { { "hidden_size", 2560 },
		     { "num_attention_heads", 16 },
		     { "vocab_size", 262208 },
		     { "num_key_value_heads", 4 } };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		assert_int_equal(json_integer_value(json_object_get(text, want[i].key)),
				 want[i].value);
	assert_string_equal(json_string_value(json_object_get(text, "model_type")), "gemma3_text");
	assert_int_equal(json_array_size(json_object_get(text, "eos_token_id")), 2);
	json_decref(text);
	json_object_del(whole, "text_config");
	assert_int_equal(text_part_config(whole, "config.json", &text, &e), ERR_INPUT);
	assert_non_null(strstr(e.msg, "config.json: 'text_config'"));
	json_object_set_new(whole, "model_type", json_string("llama"));
	assert_int_equal(text_part_config(whole, "config.json", &text, &e), 0);
	json_decref(whole);
	whole = json_loads("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":"
			   "\"ministral3\"}}",
			   0, NULL);
	assert_int_equal(text_part_config(whole, "config.json", &text, &e), 1);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(text, "architectures"), 0)),
		"Ministral3ForCausalLM");
	json_decref(text);
	json_decref(whole);
	static const char *const names[][2] = {
		{ "language_model.model.norm.weight", "model.norm.weight" },
		{ "model.language_model.norm.weight", "model.norm.weight" },
		{ "language_model.lm_head.weight", "lm_head.weight" },
		{ "lm_head.weight", "lm_head.weight" },
		{ "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight" },
		{ "vision_tower.vision_model.x", NULL },
		{ "visual.blocks.0.attn.proj.bias", NULL },
		{ "model.multi_modal_projector.x", NULL },
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char out[64];
		const char *got = text_part_name(names[i][0], out, sizeof out);
		assert_true(!got == !names[i][1]);
		if (got)
			assert_string_equal(got, names[i][1]);
	}
	char small[8];
	assert_string_equal(text_part_name(names[0][0], small, sizeof small), names[0][0]);
	/* and its chat template */
	struct model_file *f;
	assert_int_equal(dir_make(scratch("processor"), &e), 0);
	scratch_text(scratch("processor/config.json"), "{\"model_type\": \"llama\"}");
	scratch_write(scratch("processor/model.safetensors"), "\2\0\0\0\0\0\0\0{}", 10);
	scratch_text(scratch("processor/chat_template.json"), "{\"chat_template\": \"{{ x }}\"}");
	if (model_file_open(scratch("processor"), &f, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(model_file_chat_template(f), "{{ x }}");
	model_file_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_part),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_words_of_transformers),
		cmocka_unit_test(test_rope_of_llama3),
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_sharded),
		cmocka_unit_test(test_nf4),
		cmocka_unit_test(test_bitsandbytes),
		cmocka_unit_test(test_unaligned),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_nf4_refused),
		cmocka_unit_test(test_views_of_mxfp4),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
