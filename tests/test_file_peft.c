/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_peft.c - adapters: what PEFT wrote is read, what we write is read back the same, what
 * is not understood is refused. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "file/atomic.h"
#include "file/peft.h"
#include "file/safetensors.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void test_reference(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad, back;
	if (peft_read(repository("tests/golden/models/train-qlora/init"), &a, &ad, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(ad.cfg.r, 3);
	assert_int_equal(ad.cfg.ntarget, 7);
	assert_string_equal(ad.cfg.target[0], "down_proj");
	assert_string_equal(ad.cfg.target[6], "v_proj");
	assert_int_equal(ad.npair, 21);
	assert_string_equal(ad.pair[0].module, "model.layers.0.mlp.down_proj");
	assert_string_equal(ad.pair[20].module, "model.layers.2.self_attn.v_proj");
	assert_int_equal(ad.pair[0].in, 40);
	assert_int_equal(ad.pair[0].out, 48);
	ad.cfg.alpha = 0.1;
	ad.cfg.dropout = 0.05;
	ad.cfg.rslora = true;
	for (size_t i = 0; i < ad.npair; i++)
		ad.pair[i].scale = peft_scale(&ad.cfg);
	ad.cfg.base_model = "a \"model\"\n";
	assert_int_equal(dir_make(scratch("again"), &e), 0);
	assert_int_equal(peft_write(scratch("again"), &ad, &e), 0);
	if (peft_read(scratch("again"), &a, &back, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(back.cfg.alpha == 0.1 && back.cfg.dropout == 0.05 && back.cfg.rslora);
	assert_string_equal(back.cfg.base_model, ad.cfg.base_model);
	assert_int_equal(back.npair, ad.npair);
	assert_int_equal(back.cfg.ntarget, ad.cfg.ntarget);
	for (size_t i = 0; i < ad.npair; i++) {
		struct peft_pair *p = &ad.pair[i], *q = &back.pair[i];
		assert_string_equal(p->module, q->module);
		assert_memory_equal(p->a, q->a, (size_t)(3 * p->in) * 4);
		assert_memory_equal(p->b, q->b, (size_t)(3 * p->out) * 4);
	}
	assert_int_equal(peft_write(scratch("nowhere"), &ad, &e), ERR_IO);
	arena_release(&a);
}

static void test_scale(void **state)
{
	(void)state;
	struct peft_config c = { .r = 16, .alpha = 32 };
	assert_true(peft_scale(&c) == 2);
	c.rslora = true;
	assert_true(peft_scale(&c) == 8);
}

static int zero(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		struct err *e)
{
	(void)ctx, (void)t, (void)off, (void)e;
	memset(dst, 0, n);
	return 0;
}

#define P "base_model.model."

static void adapter(const struct st_spec *spec, size_t n, const char *config)
{
	struct err e = { 0 };
	scratch_text(scratch("bad/adapter_config.json"), "%s", config);
	assert_int_equal(
		st_write(scratch("bad/adapter_model.safetensors"), spec, n, NULL, zero, NULL, &e),
		0);
}

static void refuse(int code, const char *word)
{
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	int rc = peft_read(scratch("bad"), &a, &ad, &e);
	print_message("# %s\n", rc < 0 ? e.msg : "good");
	assert_int_equal(rc, code);
	if (code && !strstr(e.msg, word))
		fail_msg("'%s' does not mention '%s'", e.msg, word);
	arena_release(&a);
}

static void test_refused(void **state)
{
	(void)state;
	const struct st_spec good[] = {
		{ P "layers.2.q.lora_A.weight", DT_F16, 2, { 8, 5 }, NULL },
		{ P "layers.2.q.lora_B.weight", DT_BF16, 2, { 7, 8 }, NULL },
		{ P "layers.10.q.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "layers.10.q.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL }
	};
	static const struct {
		const char *config;
		int code;
		const char *word;
	} rows[] = {
		{ "{\"peft_type\":\"LORA\"}", 0, "" },
		{ "{\"peft_type\":\"LORA\",\"some_new_thing\":null,\"layers_to_transform\":[],"
		  "\"target_modules\":\"all-linear\"}",
		  0, "" },
		{ "{}", ERR_INPUT, "peft_type" },
		{ "{\"peft_type\":\"IA3\"}", ERR_UNSUPPORTED, "IA3" },
		{ "{\"peft_type\":\"LORA\",\"some_new_thing\":true}", ERR_UNSUPPORTED,
		  "some_new_thing" },
		{ "{\"peft_type\":\"LORA\",\"use_dora\":true}", ERR_INPUT, "use_dora" },
		{ "{\"peft_type\":\"LORA\",\"bias\":\"all\"}", ERR_UNSUPPORTED, "bias" },
		{ "{\"peft_type\":\"LORA\",\"fan_in_fan_out\":true}", ERR_UNSUPPORTED,
		  "fan_in_fan_out" },
		{ "{\"peft_type\":\"LORA\",\"modules_to_save\":[3]}", ERR_UNSUPPORTED,
		  "modules_to_save" },
		{ "{\"peft_type\":\"LORA\",\"layers_to_transform\":[-1]}", ERR_UNSUPPORTED,
		  "layers_to_transform" },
		{ "{\"peft_type\":\"LORA\",\"rank_pattern\":{\"q\":4}}", ERR_INPUT, "'r' is 4" },
		{ "{\"peft_type\":\"LORA\",\"rank_pattern\":{\"q.*\":4}}", ERR_UNSUPPORTED,
		  "rank_pattern" },
		{ "{\"peft_type\":\"LORA\",\"alpha_pattern\":{\"q{1}\":4}}", ERR_UNSUPPORTED,
		  "alpha_pattern" },
		{ "{\"peft_type\":\"LORA\",\"rank_pattern\":[4]}", ERR_UNSUPPORTED,
		  "rank_pattern" },
		{ "{\"peft_type\":\"LORA\",\"rank_pattern\":{\"q\":0.5}}", ERR_INPUT,
		  "must be a whole number" },
		{ "{\"peft_type\":\"LORA\",\"modules_to_save\":[\"lm_head\"]}", ERR_INPUT,
		  "has no weights of 'lm_head'" },
		{ "{\"peft_type\":\"LORA\",\"modules_to_save\":[\"lm_head\"],"
		  "\"ensure_weight_tying\":true}",
		  ERR_UNSUPPORTED, "ensure_weight_tying" },
		{ "{\"peft_type\":\"LORA\",\"ensure_weight_tying\":true}", 0, "" },
		{ "{\"peft_type\":\"LORA\",\"alpha_pattern\":{\"q\":-4}}", ERR_INPUT,
		  "alpha_pattern" },
		{ "{\"peft_type\":\"LORA\",\"init_lora_weights\":\"pissa_niter_4\"}",
		  ERR_UNSUPPORTED, "pissa" },
		{ "{\"peft_type\":\"LORA\",\"r\":0}", ERR_INPUT, "'r'" },
		{ "{\"peft_type\":\"LORA\",\"r\":9}", ERR_INPUT, "'r' is 9" },
		{ "{\"peft_type\":\"LORA\",\"lora_dropout\":2}", ERR_INPUT, "lora_dropout" },
		{ "[]", ERR_INPUT, "peft_type" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		adapter(good, 4, rows[i].config);
		refuse(rows[i].code, rows[i].word);
	}
	adapter(good, 1, rows[0].config);
	refuse(ERR_INPUT, "no lora_B");
	adapter(good + 1, 1, rows[0].config);
	refuse(ERR_INPUT, "0 matrices A");
	adapter(good + 1, 3, rows[0].config);
	refuse(ERR_INPUT, "1 matrices A");
	adapter(good, 0, rows[0].config);
	refuse(ERR_INPUT, "0 matrices A");
	const struct st_spec odd[] = { { "q.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
				       { P "q.lora_magnitude_vector", DT_F32, 1, { 8 }, NULL },
				       { P "q.lora_A.weight", DT_I32, 2, { 8, 5 }, NULL },
				       { P "q.lora_B.weight", DT_I32, 2, { 7, 8 }, NULL } };
	adapter(odd, 1, rows[0].config);
	refuse(ERR_UNSUPPORTED, "not part of a LoRA pair");
	adapter(odd + 1, 1, rows[0].config);
	refuse(ERR_UNSUPPORTED, "magnitude");
	adapter(odd + 2, 2, rows[0].config);
	refuse(ERR_UNSUPPORTED, "int32");
}

static void test_order(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	const struct st_spec spec[] = {
		{ P "layers.10.q.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "layers.10.q.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL },
		{ P "layers.2.v.lora_A.weight", DT_F16, 2, { 8, 5 }, NULL },
		{ P "layers.2.v.lora_B.weight", DT_BF16, 2, { 7, 8 }, NULL },
		{ P "lm_head.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "lm_head.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL }
	};
	adapter(spec, 6, "{\"peft_type\":\"LORA\"}");
	assert_int_equal(peft_read(scratch("bad"), &a, &ad, &e), 0);
	assert_string_equal(ad.pair[0].module, "layers.2.v");
	assert_string_equal(ad.pair[1].module, "layers.10.q");
	assert_string_equal(ad.pair[2].module, "lm_head");
	assert_int_equal(ad.cfg.ntarget, 3);
	assert_int_equal(ad.cfg.r, 8);
	assert_true(ad.cfg.alpha == 8);
	arena_release(&a);
}

/* Which numbers of patterns a module has in PEFT: a key is a regular expression, in which a dot is
 * any character, and a target of target_parameters has the name of its parameter. */
static void test_patterns(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	const struct st_spec spec[] = {
		{ P "layers.2.up_proj.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "layers.2.up_proj.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL },
		{ P "layers.2.v_proj.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "layers.2.v_proj.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL },
	};
	static const struct {
		const char *pattern;
		double up, v;
	} rows[] = {
		{ "v.proj", 1, 4 },         { "2.v_pro.", 1, 4 },         { ".2.v_proj", 1, 1 },
		{ "^layers.2.v", 1, 1 },    { "^layers.2.v.proj", 1, 4 }, { "up_proj", 1, 1 },
		{ "up_proj.weight", 4, 1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char config[256];
		snprintf(config, sizeof config,
			 "{\"peft_type\":\"LORA\",\"target_parameters\":[\"up_proj.weight\"],"
			 "\"alpha_pattern\":{\"%s\":32}}",
			 rows[i].pattern);
		adapter(spec, 4, config);
		assert_int_equal(peft_read(scratch("bad"), &a, &ad, &e), 0);
		print_message("# %s: %g, %g\n", rows[i].pattern, ad.pair[0].scale,
			      ad.pair[1].scale);
		assert_true(ad.pair[0].scale == rows[i].up && ad.pair[1].scale == rows[i].v);
	}
	arena_release(&a);
}

/* A head that is a target has a pair, and its own weights beside it: both are read. */
static void test_head(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	const struct st_spec spec[] = {
		{ P "lm_head.base_layer.weight", DT_F32, 2, { 7, 5 }, NULL },
		{ P "lm_head.lora_A.weight", DT_F32, 2, { 8, 5 }, NULL },
		{ P "lm_head.lora_B.weight", DT_F32, 2, { 7, 8 }, NULL },
		{ P "embed_tokens.base_layer.weight", DT_F32, 2, { 7, 5 }, NULL },
	};
	adapter(spec, 3, "{\"peft_type\":\"LORA\"}");
	assert_int_equal(peft_read(scratch("bad"), &a, &ad, &e), 0);
	assert_true(ad.npair == 1 && ad.nsaved == 1);
	assert_string_equal(ad.pair[0].module, "lm_head");
	assert_string_equal(ad.saved[0].module, "lm_head");
	adapter(spec, 4, "{\"peft_type\":\"LORA\"}");
	refuse(ERR_UNSUPPORTED, "embed_tokens.base_layer.weight");
	arena_release(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reference), cmocka_unit_test(test_scale),
		cmocka_unit_test(test_refused),   cmocka_unit_test(test_order),
		cmocka_unit_test(test_patterns),  cmocka_unit_test(test_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
