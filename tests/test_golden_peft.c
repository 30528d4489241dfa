/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_peft.c - adapters that PEFT saved (tests/golden/peft, scripts/golden/peft_kinds.py):
 * loss and gradients with DoRA, patterns of ranks and alphas, some layers only, and modules trained
 * whole; and written again they are the same. */
#include "base/mem.h"
#include "file/peft.h"
#include "runtime/loftq.h"
#include "runtime/runtime.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "file/atomic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
	const char *name, *model;
	size_t trained;
} rows[] = {
	{ "dora", "llama3", 42 },          { "dora-phi3", "phi3", 12 },
	{ "dora-bias", "llama-bias", 42 }, { "patterns", "llama3", 12 },
	{ "layers", "llama31", 4 },        { "whole", "llama31", 6 },
	{ "whole-tied", "smollm2", 8 },    { "head-tied", "smollm2", 7 },
};

static void compare(const struct row *r, struct golden *g, struct golden_model *m, int64_t trained)
{
	struct err e;
	double worst = 0;
	size_t seen = 0;
	for (size_t i = 0; i < m->stage.nparam; i++) {
		struct param *p = &m->stage.param[i];
		if (!p->trainable)
			continue;
		uint64_t n;
		const float *want = golden_f32(g, golden_name(g, "grad.%s", p->name), &n);
		float *got = mem_array(n, 4);
		assert_non_null(got);
		assert_true(n == (uint64_t)param_count(p));
		must(dev_download(got, DEV_REF(p->grad, 0), n * 4, &e), &e);
		for (uint64_t k = 0; k < n; k++)
			got[k] /= (float)trained;
		const double d = golden_relative(got, want, n);
		if (!(d <= 1e-4))
			fail_msg("%s: gradient of %s: difference %g", r->name, p->name, d);
		worst = fmax(worst, d);
		mem_free(got);
		seen++;
	}
	assert_int_equal(seen, r->trained);
	printf("%-10s %zu gradients, difference %.2e\n", r->name, seen, worst);
}

static void same_again(const struct row *r, const struct peft_adapter *ad, struct arena *a)
{
	struct err e;
	struct peft_adapter back;
	char dir[256];
	snprintf(dir, sizeof dir, "%s", scratch("%s", r->name));
	must(dir_make(dir, &e), &e);
	must(peft_write(dir, ad, &e), &e);
	must(peft_read(dir, a, &back, &e), &e);
	assert_int_equal(back.npair, ad->npair);
	assert_int_equal(back.nsaved, ad->nsaved);
	assert_int_equal(back.cfg.nlayer, ad->cfg.nlayer);
	assert_true(back.cfg.dora == ad->cfg.dora);
	for (size_t i = 0; i < ad->npair; i++) {
		const struct peft_pair *p = &ad->pair[i], *q = &back.pair[i];
		assert_string_equal(p->module, q->module);
		assert_true(p->r == q->r && p->scale == q->scale && !p->m == !q->m);
		assert_memory_equal(p->a, q->a, (size_t)(p->r * p->in) * 4);
		assert_memory_equal(p->b, q->b, (size_t)(p->r * p->out) * 4);
		if (p->m)
			assert_memory_equal(p->m, q->m, (size_t)p->out * 4);
	}
	for (size_t i = 0; i < ad->nsaved; i++)
		assert_memory_equal(ad->saved[i].v, back.saved[i].v,
				    (size_t)(ad->saved[i].rows * ad->saved[i].cols) * 4);
}

static void adapter(const struct row *r, bool recompute)
{
	struct err e;
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	struct model_config cfg;
	struct golden g;
	struct golden_model m;
	struct stage_options o = { .act = DT_F32, .recompute = recompute };
	char path[160];
	int64_t trained;
	snprintf(path, sizeof path, "tests/golden/models/%s", r->model);
	golden_model_config(path, &cfg);
	snprintf(path, sizeof path, "tests/golden/peft/%s", r->name);
	must(peft_read(path, &a, &ad, &e), &e);
	cfg.tied &= !ad.nsaved; /* golden_model_open unties it */
	must(runtime_lora(&ad, &cfg, &o.lora, &e), &e);
	snprintf(path, sizeof path, "tests/golden/models/%s", r->model);
	golden_model_open(&m, path, &o);
	snprintf(path, sizeof path, "tests/golden/peft/%s", r->name);
	must(runtime_load_adapter(&m.stage, &ad, path, &e), &e);
	snprintf(path, sizeof path, "tests/golden/peft/%s/expect.safetensors", r->name);
	golden_open(&g, path);
	g.path = golden_name(&g, "%s", path);
	struct stage_batch b = golden_batch(&g, "", &trained);
	b.train = true;
	must(stage_begin(&m.slot, &b, &e), &e);
	must(stage_forward(&m.slot, &e), &e);
	const float loss = *golden_f32(&g, "loss", NULL);
	const double off = fabs(m.slot.loss / (double)trained - loss) / loss;
	printf("%-10s loss %.7f, difference %.2e\n", r->name, loss, off);
	if (!(off <= 1e-5))
		fail_msg("%s: loss %.7f instead of %.7f", r->name, m.slot.loss / (double)trained,
			 loss);
	must(stage_backward(&m.slot, &e), &e);
	compare(r, &g, &m, trained);
	stage_end(&m.slot);
	golden_model_close(&m);
	golden_close(&g);
	if (!recompute)
		same_again(r, &ad, &a);
	arena_release(&a);
}

static void test_adapters(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows) * 2; i++)
		adapter(&rows[i / 2], i % 2);
}

/* LoftQ's first values of adapters against those of PEFT: the same product, also where the scale
 * is not 1. */
static void test_loftq(void **state)
{
	(void)state;
	static const char *const name[] = { "self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj",
					    "mlp.down_proj" };
	struct err e;
	struct golden g;
	struct loftq l = { 0 };
	enum { R = 4 };
	must(model_file_open("tests/golden/models/llama31", &l.file, &e), &e);
	must(dev_open("cpu", &l.dev, &e), &e);
	golden_open(&g, "tests/golden/peft/loftq/expect.safetensors");
	for (size_t i = 0; i < ARRAY_LEN(name) * 2; i++) {
		char weight[96];
		const double scale = i % 2 ? 3.5 : 1;
		double left;
		uint64_t n, one;
		snprintf(weight, sizeof weight, "model.layers.0.%s.weight", name[i / 2]);
		const struct model_tensor *t = model_file_find(l.file, weight);
		assert_non_null(t);
		const int64_t out = t->shape[0], in = t->shape[1];
		float *a = mem_array((size_t)(R * in), 4), *b = mem_array((size_t)(out * R), 4),
		      *got = mem_array((size_t)(out * in), 4);
		must(loftq_begin(&l, weight, R, scale, a, b, &left, &e), &e);
		for (int64_t k = 0; k < out * in; k++)
			for (int r = 0; r < R; r++)
				got[k] += (float)scale * b[k / in * R + r] * a[r * in + k % in];
		const float *want = golden_f32(&g, golden_name(&g, "product.%s", weight), &n);
		assert_true(n == (uint64_t)(out * in));
		const double off = golden_relative(got, want, n);
		const double *exact = golden_f64(&g, golden_name(&g, "left.%s", weight), &one);
		printf("%s: product %.2e, left %.6f of %.6f\n", weight, off, left, *exact);
		if (!(off <= 2e-2) || !(left - *exact <= 2e-5))
			fail_msg("%s: product differs by %g, %.7f left instead of %.7f", weight,
				 off, left, *exact);
		mem_free(a);
		mem_free(b);
		mem_free(got);
	}
	/* a rank above both sides takes all */
	const float d[6] = { 1, 2, 3, 4, 5, 7 };
	float a[8 * 3], b[2 * 8];
	double left;
	must(loftq_divide(d, 2, 3, 8, 2, a, b, &left, &e), &e);
	for (int k = 0; k < 6; k++) {
		double x = 0;
		for (int r = 0; r < 8; r++)
			x += 2.0 * (double)b[k / 3 * 8 + r] * (double)a[r * 3 + k % 3];
		assert_true(fabs(x - (double)d[k]) < 1e-5);
	}
	golden_close(&g);
	dev_close(l.dev);
	model_file_close(l.file);
}

/* PiSSA's first adapters and base against PEFT's. */
static void test_pissa(void **state)
{
	(void)state;
	static const char *const name[] = { "self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj",
					    "mlp.down_proj" };
	struct err e;
	struct golden g;
	struct model_file *f;
	enum { R = 4 };
	const double scale = 3.5;
	must(model_file_open("tests/golden/models/llama31", &f, &e), &e);
	golden_open(&g, "tests/golden/peft/pissa/expect.safetensors");
	for (size_t i = 0; i < ARRAY_LEN(name); i++) {
		char weight[96];
		double left;
		uint64_t n, one;
		snprintf(weight, sizeof weight, "model.layers.0.%s.weight", name[i]);
		const struct model_tensor *t = model_file_find(f, weight);
		assert_non_null(t);
		const int64_t out = t->shape[0], in = t->shape[1];
		float *w = mem_array(t->count, 4), *a = mem_array((size_t)(R * in), 4),
		      *b = mem_array((size_t)(out * R), 4), *got = mem_array(t->count, 4);
		must(model_file_read_f32(f, t, 0, out, w, &e), &e);
		must(loftq_divide(w, out, in, R, scale, a, b, &left, &e), &e);
		for (int64_t k = 0; k < out * in; k++)
			for (int r = 0; r < R; r++)
				got[k] += (float)scale * b[k / in * R + r] * a[r * in + k % in];
		for (uint64_t k = 0; k < t->count; k++)
			w[k] -= got[k];
		const float *product = golden_f32(&g, golden_name(&g, "product.%s", weight), &n);
		assert_true(n == t->count);
		const double off = golden_relative(got, product, n);
		const float *base = golden_f32(&g, golden_name(&g, "base.%s", weight), &n);
		const double off_base = golden_relative(w, base, n);
		const double *exact = golden_f64(&g, golden_name(&g, "left.%s", weight), &one);
		printf("%s: product %.2e, base %.2e, left %.6f of %.6f\n", weight, off, off_base,
		       left, *exact);
		if (!(off <= 2e-2) || !(off_base <= 2e-2) || !(left - *exact <= 2e-5))
			fail_msg("%s: product differs by %g, base by %g, %.7f left instead of %.7f",
				 weight, off, off_base, left, *exact);
		mem_free(w);
		mem_free(a);
		mem_free(b);
		mem_free(got);
	}
	golden_close(&g);
	model_file_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_adapters),
					    cmocka_unit_test(test_loftq),
					    cmocka_unit_test(test_pissa) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
