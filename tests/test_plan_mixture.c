/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_mixture.c - the memory of mixtures of experts in a plan: what a description says of a
 * layer and of its experts is what a stage of that shape takes on a device, in MXFP4, in NF4 and in
 * 16 bits, with layers that have no experts among them; and a device whose experts are offloaded
 * needs that much less, and its host that much more; and how much longer a step takes. A device
 * that is too small without gets it, and one that is too small for any of it is named in one
 * line. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "model/stage.h"
#include "plan/describe.h"
#include "plan/fit.h"
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB 1073741824.0
#define ALIKE /* as many heads of keys as of queries */                                            \
	"\"hidden_size\":512,\"intermediate_size\":512,\"num_hidden_layers\":2,"                   \
	"\"num_attention_heads\":8,\"vocab_size\":512,\"max_position_embeddings\":512"
#define EQUAL ALIKE ",\"num_experts_per_tok\":2"
#define SHAPE EQUAL ",\"num_key_value_heads\":4"

static char dir[] = "/tmp/plan-mixture-XXXXXX";

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0)                                                                       \
			fail_msg("%s", e.msg);                                                     \
	} while (0)

static const struct {
	const char *name, *config, *keys;
	bool quantize;
} kinds[] = {
	{ "gpt-oss, MXFP4",
	  "{\"model_type\":\"gpt_oss\"," SHAPE ",\"num_local_experts\":4,"
	  "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
	  "adapter: lora\n", false },
	{ "gpt-oss, 4 bits",
	  "{\"model_type\":\"gpt_oss\"," SHAPE ",\"num_local_experts\":4,"
	  "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
	  "adapter: qlora\n", true },
	{ "Qwen3-MoE, NF4",
	  "{\"model_type\":\"qwen3_moe\"," SHAPE
	  ",\"moe_intermediate_size\":256,\"num_experts\":8}",
	  "adapter: qlora\n", true },
	{ "GLM, a layer without experts, NF4",
	  "{\"model_type\":\"glm4_moe\"," SHAPE
	  ",\"moe_intermediate_size\":256,\"n_routed_experts\":8,\"first_k_dense_replace\":1}",
	  "adapter: qlora\n", true },
	{ "Qwen3.5, NF4",
	  "{\"model_type\":\"qwen3_5_moe_text\"," SHAPE
	  ",\"moe_intermediate_size\":256,\"shared_expert_intermediate_size\":128,"
	  "\"num_experts\":8,\"full_attention_interval\":2}",
	  "adapter: qlora\n", true },
	{ "Qwen3-Next, NF4",
	  "{\"model_type\":\"qwen3_next\"," SHAPE
	  ",\"moe_intermediate_size\":256,\"shared_expert_intermediate_size\":128,"
	  "\"num_experts\":8,\"full_attention_interval\":2}",
	  "adapter: qlora\n", true },
	{ "GLM-4.7-Flash, NF4",
	  "{\"model_type\":\"glm4_moe_lite\"," EQUAL
	  ",\"moe_intermediate_size\":256,\"n_routed_experts\":8,\"kv_lora_rank\":64,"
	  "\"q_lora_rank\":null,\"qk_nope_head_dim\":24,\"qk_rope_head_dim\":16,\"v_head_dim\":32}",
	  "adapter: qlora\n", true },
	{ "LFM2, NF4",
	  "{\"model_type\":\"lfm2_moe\"," SHAPE
	  ",\"moe_intermediate_size\":256,\"num_experts\":8,\"num_dense_layers\":1,"
	  "\"layer_types\":[\"full_attention\",\"conv\"]}",
	  "adapter: qlora\n", true },
	{ "Gemma 4, NF4",
	  "{\"model_type\":\"gemma4_text\"," ALIKE ",\"num_key_value_heads\":4"
	  ",\"moe_intermediate_size\":256,\"num_experts\":8,\"top_k_experts\":2,"
	  "\"enable_moe_block\":true,\"head_dim\":64,\"hidden_size_per_layer_input\":0}",
	  "adapter: qlora\n", true },
	{ "Mixtral, plain", "{\"model_type\":\"mixtral\"," SHAPE ",\"num_local_experts\":4}",
	  "adapter: lora\n", false },
};

/* What layers have on a device, without gradients and states. */
static double bytes_of_layers(const struct stage *s, bool experts)
{
	double sum = 0;
	for (size_t i = 0; i < s->nparam; i++) {
		const struct param *p = &s->param[i];
		const bool expert = strstr(p->name, ".experts.") && !p->trainable && p->ndim == 2;
		if (p->layer < 0 || p->layer >= s->cfg.layers || (experts && !expert))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(p->store); k++) /* 1 and 3: tables of 4 bits */
			if (p->store[k] && (k == 0 || k == 2 || (k == 4 && !experts)))
				sum += (double)p->store[k]->size;
	}
	return sum / (double)s->cfg.layers;
}

static void describe(const char *config, const char *keys, struct profile *p,
		     struct model_config *c)
{
	char path[200], text[600];
	struct err e = { 0 };
	struct buf notes = BUF_INIT;
	json_t *j = json_loads(config, 0, NULL);
	snprintf(path, sizeof path, "%s/config.json", dir);
	OK(atomic_write_file(path, config, strlen(config), &e));
	OK(model_config_read(j, path, c, &e));
	json_decref(j);
	snprintf(text, sizeof text,
		 "base_model: %s\n%slora_r: 4\nlora_target_modules: [q_proj]\nsequence_len: 64\n"
		 "batch: 2\ncompute_dtype: float32\ndevices: [{card: 3090, host: a}]\n",
		 path, keys);
	snprintf(path, sizeof path, "%s/cluster.yaml", dir);
	OK(atomic_write_file(path, text, strlen(text), &e));
	OK(profile_describe(path, NULL, 0, p, &notes, &e));
	buf_release(&notes);
}

static void what_a_layer_takes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct model_config *c = mem_zalloc(sizeof *c);
		struct profile p;
		struct stage s;
		struct dev *d;
		struct err e = { 0 };
		static const char *const q[] = { "q_proj" };
		describe(kinds[i].config, kinds[i].keys, &p, c);
		struct stage_options o = { .last = c->layers,
					   .act = DT_F32,
					   .quantize = kinds[i].quantize,
					   .double_quant = true,
					   .lora = { .r = 4, .scale = 1 } };
		const struct weight_source src = source_random(c);
		OK(lora_targets(c, q, 1, &o.lora, &e));
		OK(dev_open("cpu", &d, &e));
		OK(stage_build(&s, d, c, &o, &src, &e));
		const double layer = bytes_of_layers(&s, false),
			     experts = bytes_of_layers(&s, true);
		printf("%s: a layer %.0f KiB, planned %.0f; its experts %.0f, planned %.0f\n",
		       kinds[i].name, layer / 1024, p.layer_gib * GIB / 1024, experts / 1024,
		       p.expert_gib * GIB / 1024);
		assert_true(fabs(p.layer_gib * GIB / layer - 1) < 0.005);
		assert_true(fabs(p.expert_gib * GIB / experts - 1) < 0.002);
		stage_release(&s);
		dev_close(d);
		profile_release(&p);
		mem_free(c);
	}
}

static void what_offloading_takes_off(void **state)
{
	(void)state;
	struct model_config *c = mem_zalloc(sizeof *c);
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct profile p;
	struct plan with, without;
	struct err e = { 0 };
	o.microbatch = 1;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	describe(kinds[2].config, kinds[2].keys, &p, c);
	const struct planner *best = planner_find("best");
	const double message = (double)p.sequence_len * p.hidden * p.wire_bytes;
	/* a GB a second between host and device */
	p.device[0].copy_ms = (struct curve){ .line = true, .given = true, .slope = message / 1e6 };
	OK(planner_run(best, &p, &o, &without, &e));
	o.offload = OFFLOAD_EXPERTS;
	o.expert_cache_gib = p.expert_gib / 2;
	OK(planner_run(best, &p, &o, &with, &e));
	const double less =
		without.stage[0].member[0].memory_gib - with.stage[0].member[0].memory_gib;
	printf("of %.5f GiB of experts %.5f are off the device, %.5f on its host\n",
	       2 * p.expert_gib, less, with.stage[0].member[0].host_gib);
	assert_true(less > 1.45 * p.expert_gib && less < 1.7 * p.expert_gib);
	assert_true(fabs(with.stage[0].member[0].host_gib / (2 * p.expert_gib) - 1) < 1e-6);
	assert_true(without.stage[0].member[0].host_gib == 0);
	/* half of a layer's experts have slots: what tokens choose travels, in both passes */
	const double k = 2.0 / 8, chosen = 1 - pow(1 - k, p.sequence_len * with.microbatch),
		     bytes = chosen * (1 - 0.25) * p.expert_gib * GIB, travel = bytes / 1e6;
	const double passes = (double)p.global_batch / with.microbatch,
		     longer = with.simulated_ms - without.simulated_ms,
		     most = 2.0 * p.layers * passes * travel;
	printf("a step %.2f ms longer; with nothing beside the transfers it would be %.2f\n",
	       longer, most);
	assert_true(longer > 0.5 * most && longer < most);
	plan_release(&with);
	plan_release(&without);
	profile_release(&p);
	mem_free(c);
}

static void refused(const struct profile *p, const struct plan_options *o, struct err *e)
{
	struct plan plan;
	if (planner_run(planner_find("best"), p, o, &plan, e) >= 0) {
		assert_false(plan.fits);
		assert_int_equal(plan_over_error(p, o, &plan, e), ERR_USAGE);
		plan_release(&plan);
	}
	printf("%s\n", e->msg);
}

static void devices_that_are_too_small(void **state)
{
	(void)state;
	struct model_config *c = mem_zalloc(sizeof *c);
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct profile p;
	struct plan plan;
	struct err e = { 0 };
	o.microbatch = 1;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	describe(kinds[2].config, kinds[2].keys, &p, c);
	const struct planner *best = planner_find("best");
	o.reserve_gib = 0;
	o.expert_cache_gib = p.expert_gib / 2;
	OK(planner_run(best, &p, &o, &plan, &e));
	const double all = plan.stage[0].member[0].memory_gib;
	plan_release(&plan);
	/* too small for all experts */
	p.device[0].memory_gib = all - p.expert_gib;
	refused(&p, &o, &e);
	assert_non_null(strstr(e.msg, "'offload: [experts]'"));
	err_clear(&e);
	o.offload_auto = true;
	OK(planner_run(best, &p, &o, &plan, &e));
	assert_true(plan.offload == OFFLOAD_EXPERTS && plan.fits);
	plan_release(&plan);
	/* too small for one of them, beside what it needs anyway */
	p.device[0].memory_gib = all - 2 * p.expert_gib;
	refused(&p, &o, &e);
	assert_non_null(strstr(e.msg, "no plan fits into memory: the nearest one needs"));
	assert_null(strchr(e.msg, '\n'));
	profile_release(&p);
	mem_free(c);
}

int main(void)
{
	struct err e = { 0 };
	if (!mkdtemp(dir))
		return 1;
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_a_layer_takes),
					    cmocka_unit_test(what_offloading_takes_off),
					    cmocka_unit_test(devices_that_are_too_small) };
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	dir_remove(dir, &e);
	return rc;
}
