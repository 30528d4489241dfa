/* SPDX-License-Identifier: Apache-2.0 */
/* test_adapter_fused.c - adapters of PEFT on the fused experts of a layer: what was saved by PEFT
 * (scripts/golden/peft_parameters.py) adds to each expert what it adds there, and its pairs come
 * back from a file in which they were fused again as they were. */
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "runtime/adapter_fused.h"
#include "runtime/runtime.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN "tests/golden/"

static const struct peft_pair *pair_of(const struct peft_adapter *ad, const char *module)
{
	for (size_t i = 0; i < ad->npair; i++)
		if (!strcmp(ad->pair[i].module, module))
			return &ad->pair[i];
	fail_msg("no pair on %s", module);
	return NULL;
}

static void same_delta(struct golden *g, const char *name, const struct peft_pair *p)
{
	uint64_t n;
	const float *want = golden_f32(g, name, &n);
	double worst = 0, most = 0;
	assert_int_equal(n, p->out * p->in);
	for (int64_t o = 0; o < p->out; o++)
		for (int64_t i = 0; i < p->in; i++) {
			double sum = 0;
			for (int k = 0; k < p->r; k++)
				sum += (double)p->b[o * p->r + k] * (double)p->a[k * p->in + i];
			worst = fmax(worst, fabs(p->scale * sum - (double)want[o * p->in + i]));
			most = fmax(most, fabs((double)want[o * p->in + i]));
		}
	if (!(most > 0.01 && worst <= 1e-5 * most))
		fail_msg("%s: difference %g of %g", name, worst, most);
}

static void what_peft_saved(void **state)
{
	(void)state;
	static const struct {
		const char *model, *block, *part[3], *router;
	} rows[] = {
		{ "gpt-oss-bf16", "mlp.", { "gate_proj", "up_proj", "down_proj" }, "mlp.router" },
		{ "mixtral", "block_sparse_moe.", { "w1", "w3", "w2" }, "block_sparse_moe.gate" },
		{ "glm4-moe", "mlp.", { "gate_proj", "up_proj", "down_proj" }, "mlp.gate" },
		{ "gemma4-moe", "", { "gate_proj", "up_proj", "down_proj" }, "router.proj" },
	};
	static const char *const part[] = { "gate", "up", "down" };
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char path[200], name[256], dir[] = "/tmp/adapter-XXXXXX";
		struct model_config *c = mem_zalloc(sizeof *c);
		struct arena a = ARENA_INIT;
		struct peft_adapter ad, again;
		struct lora_options o;
		struct golden g;
		struct err e = { 0 };
		int seen = 0;
		snprintf(path, sizeof path, GOLDEN "models/%s", rows[i].model);
		golden_model_config(path, c);
		snprintf(path, sizeof path, GOLDEN "peft-parameters/%s", rows[i].model);
		must(adapter_read(path, c, &a, &ad, &e), &e);
		must(runtime_lora(&ad, c, &o, &e), &e);
		assert_int_equal(ad.npair,
				 c->layers + (c->layers - c->dense_layers) * (3 * c->experts + 1));
		snprintf(name, sizeof name, "%s/expect.safetensors", path);
		golden_open(&g, name);
		for (int l = 0; l < c->layers; l++) {
			if (!layer_is_mixture(c, l))
				continue;
			for (int k = 0; k < 6; k++, seen++) {
				char want[64];
				snprintf(name, sizeof name, "model.layers.%d.%sexperts.%d.%s", l,
					 rows[i].block, k < 3 ? 0 : 3, rows[i].part[k % 3]);
				snprintf(want, sizeof want, "delta.%d.%d.%s", l, k < 3 ? 0 : 3,
					 part[k % 3]);
				same_delta(&g, want, pair_of(&ad, name));
			}
			snprintf(name, sizeof name, "model.layers.%d.%s", l, rows[i].router);
			same_delta(&g, golden_name(&g, "delta.%d.router", l), pair_of(&ad, name));
		}
		assert_true(seen >= 12);
		golden_close(&g);
		must(adapter_fuse(&ad, c, &a, &again, &e), &e);
		assert_non_null(mkdtemp(dir));
		must(peft_write(dir, &again, &e), &e);
		must(adapter_read(dir, c, &a, &again, &e), &e);
		assert_int_equal(again.npair, ad.npair);
		for (size_t k = 0; k < ad.npair; k++) {
			const struct peft_pair *p = &ad.pair[k], *q = pair_of(&again, p->module);
			assert_int_equal(p->r, q->r);
			assert_true(fabs(p->scale - q->scale) < 1e-12);
			assert_memory_equal(p->a, q->a, (size_t)(p->r * p->in) * 4);
			assert_memory_equal(p->b, q->b, (size_t)(p->r * p->out) * 4);
		}
		must(dir_remove(dir, &e), &e);
		arena_release(&a);
		mem_free(c);
	}
}

/* Pairs on what every token has, of an MLP and of a shared expert, become parameters as the experts
 * are: PEFT 0.21 takes `gate_proj` as a target for a name of experts and leaves such modules out
 * (the logits of glm4-moe were 1.66 off). */
static void dense_ones_are_parameters(void **state)
{
	(void)state;
	static const char *const module[] = { "model.layers.0.mlp.down_proj",
					      "model.layers.1.mlp.shared_experts.gate_proj" };
	static const char *const key[] = { "mlp.down_proj.weight",
					   "shared_experts.gate_proj.weight" };
	struct model_config *c = mem_zalloc(sizeof *c);
	char dir[] = "/tmp/adapter-XXXXXX";
	struct arena a = ARENA_INIT;
	struct peft_adapter ad, again;
	struct err e = { 0 };
	golden_model_config(GOLDEN "models/glm4-moe", c);
	must(adapter_read(GOLDEN "peft-parameters/glm4-moe", c, &a, &ad, &e), &e);
	struct peft_pair *pair = arena_alloc(&a, (ad.npair + 2) * sizeof *pair);
	assert_non_null(pair);
	memcpy(pair, ad.pair, ad.npair * sizeof *pair);
	for (int i = 0; i < 2; i++) {
		struct peft_pair *p = &pair[ad.npair];
		*p = (struct peft_pair){ .module = module[i],
					 .in = i ? c->hidden : c->dense_width,
					 .out = i ? c->shared : c->hidden,
					 .r = 2,
					 .scale = 0.5 };
		float *x = arena_alloc(&a, (size_t)(2 * (p->in + p->out)) * sizeof *x);
		assert_non_null(x);
		for (int64_t k = 0; k < 2 * (p->in + p->out); k++)
			x[k] = (float)k;
		p->a = x;
		p->b = x + 2 * p->in;
		ad.npair++;
	}
	ad.pair = pair;
	must(adapter_fuse(&ad, c, &a, &again, &e), &e);
	for (int i = 0; i < 2; i++) {
		size_t found = 0;
		for (size_t k = 0; k < again.cfg.nparameter; k++)
			found += !strcmp(again.cfg.parameter[k], key[i]);
		assert_int_equal(found, 1);
	}
	for (size_t k = 0; k < again.cfg.ntarget; k++)
		assert_null(strstr(again.cfg.target[k], "gate_proj"));
	assert_non_null(mkdtemp(dir));
	must(peft_write(dir, &again, &e), &e);
	must(adapter_read(dir, c, &a, &again, &e), &e);
	for (int i = 0; i < 2; i++) {
		const struct peft_pair *p = &ad.pair[ad.npair - 2 + (size_t)i],
				       *q = pair_of(&again, module[i]);
		assert_true(q->r == 2 && fabs(q->scale - 0.5) < 1e-12);
		assert_memory_equal(p->a, q->a, (size_t)(2 * p->in) * 4);
		assert_memory_equal(p->b, q->b, (size_t)(2 * p->out) * 4);
	}
	must(dir_remove(dir, &e), &e);
	arena_release(&a);
	mem_free(c);
}

static void does_not_fit(void **state)
{
	(void)state;
	static const struct {
		const char *model, *adapter, *says;
	} rows[] = {
		{ "llama2", "mixtral", "a llama model has none" },
		{ "qwen3-moe", "mixtral", "does not fit 8 experts of [24, 48]" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char path[200];
		struct model_config *c = mem_zalloc(sizeof *c);
		struct arena a = ARENA_INIT;
		struct peft_adapter ad;
		struct err e = { 0 };
		snprintf(path, sizeof path, GOLDEN "models/%s", rows[i].model);
		golden_model_config(path, c);
		snprintf(path, sizeof path, GOLDEN "peft-parameters/%s", rows[i].adapter);
		assert_true(adapter_read(path, c, &a, &ad, &e) < 0);
		printf("%s\n", e.msg);
		assert_non_null(strstr(e.msg, rows[i].says));
		arena_release(&a);
		mem_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_peft_saved),
					    cmocka_unit_test(dense_ones_are_parameters),
					    cmocka_unit_test(does_not_fit) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
