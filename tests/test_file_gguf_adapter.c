/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_gguf_adapter.c - adapters written as GGUF, for llama.cpp's --lora. */
#include "base/err.h"
#include "file/gguf.h"
#include "file/gguf_write.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model_file *open_model(const char *name)
{
	struct err e = { 0 };
	struct model_file *f = NULL;
	if (model_file_open(repository("tests/golden/models/%s", name), &f, &e) < 0)
		fail_msg("%s", e.msg);
	return f;
}

/* An adapter's two halves, as llama.cpp multiplies them, are B A of the adapter: rows of B in the
 * order of the file's Q and K. */
static void test_adapter(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct model_file *b = open_model("smollm2");
	const char *const modules[] = { "self_attn.q_proj", "mlp.down_proj" };
	struct peft_pair pair[2];
	const char *const out = scratch("adapter.gguf");
	float *v[4];
	for (int i = 0; i < 2; i++) {
		char name[128];
		snprintf(name, sizeof name, "model.layers.1.%s.weight", modules[i]);
		const struct model_tensor *t = model_file_find(b, name);
		assert_non_null(t);
		v[2 * i] = malloc((size_t)(2 * t->shape[1]) * 4);
		v[2 * i + 1] = malloc((size_t)(2 * t->shape[0]) * 4);
		for (int64_t k = 0; k < 2 * t->shape[1]; k++)
			v[2 * i][k] = (float)k;
		for (int64_t k = 0; k < 2 * t->shape[0]; k++)
			v[2 * i + 1][k] = -(float)k;
		pair[i] = (struct peft_pair){ .module = strcpy(malloc(128), name),
					      .in = t->shape[1],
					      .r = 2,
					      .scale = 6 / sqrt(2),
					      .out = t->shape[0],
					      .a = v[2 * i],
					      .b = v[2 * i + 1] };
		*strstr((char *)pair[i].module, ".weight") = 0;
	}
	const struct peft_adapter ad = { .cfg = { .r = 2, .alpha = 6, .rslora = true },
					 .pair = pair,
					 .npair = 2 };
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), 0);
	struct gguf g;
	json_t *value = NULL;
	assert_int_equal(gguf_open(out, &g, &e), 0);
	assert_int_equal(gguf_kv_json(&g, gguf_find(&g, "adapter.lora.alpha"), &value, &e), 0);
	/* PEFT scales by alpha / sqrt(r) here, llama.cpp by its own alpha / r */
	assert_true(fabs(json_number_value(value) / 2 - 6 / sqrt(2)) < 1e-6);
	json_decref(value);
	assert_int_equal(g.ntensor, 4);
	static const char *const names[] = { "blk.1.attn_q.weight.lora_a",
					     "blk.1.attn_q.weight.lora_b",
					     "blk.1.ffn_down.weight.lora_a",
					     "blk.1.ffn_down.weight.lora_b" };
	int64_t heads = json_integer_value(
			json_object_get(model_file_config(b), "num_attention_heads")),
		dim = pair[0].out / heads;
	for (int i = 0; i < 4; i++) {
		const struct gguf_tensor *t = &g.tensor[i];
		const struct peft_pair *p = &pair[i / 2];
		assert_string_equal(t->name, names[i]);
		assert_int_equal(t->ne[0], i % 2 ? 2 : p->in);
		assert_int_equal(t->ne[1], i % 2 ? p->out : 2);
		for (int64_t r = 0; r < t->ne[1]; r++) {
			/* the file interleaves the two halves of a head */
			int64_t from = i == 1 ? r / dim * dim + r % dim / 2 + r % 2 * (dim / 2) : r;
			float first;
			memcpy(&first, t->data + (size_t)(r * t->ne[0]) * 4, 4);
			assert_true(first == v[i][from * t->ne[0]]);
		}
	}
	gguf_close(&g);
	free((char *)pair[1].module);
	pair[1].module = "model.layers.99.mlp.down_proj";
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), ERR_UNSUPPORTED);
	free((char *)pair[0].module);
	for (int i = 0; i < 4; i++)
		free(v[i]);
	model_file_close(b);
}

/* The adapters of all experts of a layer are one tensor, zeros where an expert has none. */
static void test_adapter_experts(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct model_file *b = open_model("qwen3-moe");
	float v[2][2 * 48]; /* A (2,48), B (24,2) */
	struct peft_pair pair[2];
	for (int k = 0; k < 2 * 48; k++) {
		v[0][k] = 1 + (float)k;
		v[1][k] = -1 - (float)k;
	}
	for (int i = 0; i < 2; i++)
		pair[i] = (struct peft_pair){ .module = i ? "model.layers.0.mlp.experts.6.up_proj"
							  : "model.layers.0.mlp.experts.1.up_proj",
					      .in = 48,
					      .out = 24,
					      .r = 2,
					      .scale = 2,
					      .a = v[i],
					      .b = v[i] };
	const struct peft_adapter ad = { .cfg = { .r = 2, .alpha = 4 }, .pair = pair, .npair = 2 };
	const char *const out = scratch("experts.gguf");
	struct gguf g;
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), 0);
	assert_int_equal(gguf_open(out, &g, &e), 0);
	assert_int_equal(g.ntensor, 2);
	for (int i = 0; i < 2; i++) {
		const struct gguf_tensor *t = &g.tensor[i];
		assert_string_equal(t->name, i ? "blk.0.ffn_up_exps.weight.lora_b"
					       : "blk.0.ffn_up_exps.weight.lora_a");
		assert_true(t->ndim == 3 && t->ne[2] == 8);
		assert_true(t->ne[0] == (i ? 2 : 48) && t->ne[1] == (i ? 24 : 2));
		const size_t n = i ? 48 : 96;
		for (size_t k = 0; k < 8 * n; k++) {
			float is;
			memcpy(&is, t->data + 4 * k, 4);
			assert_true(is == (k / n == 1   ? v[0][k % n]
					   : k / n == 6 ? v[1][k % n]
							: 0));
		}
	}
	gguf_close(&g);
	pair[1].module = "model.layers.0.mlp.experts.8.up_proj";
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), ERR_UNSUPPORTED);
	model_file_close(b);
	/* gate and up of all experts are one tensor in a file of Gemma 4 */
	b = open_model("gemma4-moe");
	pair[0].module = "model.layers.0.experts.1.down_proj";
	pair[0].in = 24;
	pair[0].out = 48;
	const struct peft_adapter down = { .cfg = { .r = 2, .alpha = 4 },
					   .pair = pair,
					   .npair = 1 };
	assert_int_equal(gguf_write_adapter(out, b, &down, &e), 0);
	float scale[6], first; /* of expert 1, which llama.cpp multiplies before it adds */
	const struct model_tensor *scales =
		model_file_find(b, "model.layers.0.router.per_expert_scale");
	assert_int_equal(model_file_read_f32(b, scales, 0, 6, scale, &e), 0);
	assert_int_equal(gguf_open(out, &g, &e), 0);
	memcpy(&first, g.tensor[1].data + 4 * 48 * 2, 4);
	assert_true(scale[1] != 1 && first == scale[1] * v[0][0]);
	gguf_close(&g);
	pair[0].module = "model.layers.0.experts.1.up_proj";
	pair[1].module = "model.layers.0.experts.4.gate_proj";
	pair[0].in = 48;
	pair[0].out = 24;
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), 0);
	assert_int_equal(gguf_open(out, &g, &e), 0);
	assert_int_equal(g.ntensor, 2);
	for (int i = 0; i < 2; i++) {
		const struct gguf_tensor *t = &g.tensor[i];
		assert_string_equal(t->name, i ? "blk.0.ffn_gate_up_exps.weight.lora_b"
					       : "blk.0.ffn_gate_up_exps.weight.lora_a");
		assert_true(t->ndim == 3 && t->ne[0] == (i ? 4 : 48) && t->ne[1] == (i ? 48 : 4) &&
			    t->ne[2] == 6);
		for (int64_t k = 0; k < (int64_t)t->count; k++) {
			const int64_t each = i ? 48 * 4 : 4 * 48, x = k / each, at = k % each;
			const bool up = x == 1, there = up || x == 4;
			const int64_t row = at / t->ne[0], column = at % t->ne[0];
			float is, want = 0;
			memcpy(&is, t->data + 4 * k, 4);
			if (there && !i && row / 2 == up)
				want = v[!up][row % 2 * 48 + column];
			if (there && i && row / 24 == up && column / 2 == up)
				want = 2 * v[!up][row % 24 * 2 + column % 2];
			assert_true(is == want);
		}
	}
	gguf_close(&g);
	pair[1].r = 1; /* not all of one rank */
	pair[1].scale = 4;
	assert_int_equal(gguf_write_adapter(out, b, &ad, &e), ERR_INPUT);
	model_file_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_adapter),
					    cmocka_unit_test(test_adapter_experts) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
