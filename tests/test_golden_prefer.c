/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_prefer.c - the losses of preferences against TRL in PyTorch: log-probabilities
 * without the adapter, loss, rewards, and the gradient of every adapter matrix
 * (tests/golden/prefer, made by scripts/golden/prefer.py); and each row's derivatives against
 * differences. In float32 on the CPU backend. */
#include "base/mem.h"
#include "data/batch.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "tests/golden/models/llama2"

static const struct row {
	const char *name, *data;
	struct prefer_options o;
} cases[] = {
	{ "dpo", "pairs", { .name = "dpo", .beta = 0.1 } },
	{ "dpo-rpo", "pairs", { .name = "dpo", .beta = 0.3, .smoothing = 0.1, .likelihood = 0.7 } },
	{ "ipo", "pairs", { .name = "ipo", .beta = 0.2 } },
	{ "simpo", "pairs", { .name = "simpo", .beta = 2, .gamma = 0.5, .likelihood = 0.3 } },
	{ "orpo", "prompts", { .name = "orpo", .beta = 0.25 } },
	{ "kto", "single", { .name = "kto", .beta = 0.4, .good = 1, .bad = 1.5 } },
	{ "kto-zero", "single", { .name = "kto", .beta = 0.4, .good = 1, .bad = 1.5 } },
};

static void open_model(struct golden *g, struct golden_model *m, const struct prefer_options *o,
		       bool recompute)
{
	static const char *const all[] = { "all-linear" };
	struct err e;
	struct model_config cfg;
	struct stage_options so = { .act = DT_F32, .recompute = recompute, .prefer = *o };
	golden_open(g, "tests/golden/prefer/expect.safetensors");
	golden_model_config(MODEL, &cfg);
	so.lora.r = (int64_t)*golden_f32(g, "lora_r", NULL);
	so.lora.scale = lora_scale(so.lora.r, *golden_f32(g, "lora_alpha", NULL), false);
	must(lora_targets(&cfg, all, 1, &so.lora, &e), &e);
	golden_model_open(m, MODEL, &so);
	for (size_t i = 0; i < m->stage.nparam; i++) {
		const char *name = m->stage.param[i].name, *at = strstr(name, ".lora_");
		uint64_t n;
		if (!at)
			continue;
		const float *v = golden_f32(
			g, golden_name(g, "lora.%.*s.%c", (int)(at - name), name, at[6]), &n);
		golden_set(m, name, v, n);
	}
}

static void run(struct golden_model *m, const struct stage_batch *b)
{
	struct err e;
	must(stage_begin(&m->slot, b, &e), &e);
	must(stage_forward(&m->slot, &e), &e);
	if (b->train)
		must(stage_backward(&m->slot, &e), &e);
}

static double worst_gradient(struct golden *g, struct golden_model *m, const char *name,
			     int64_t rows)
{
	struct err e;
	double worst = 0;
	int seen = 0;
	for (size_t i = 0; i < m->stage.nparam; i++) {
		struct param *p = &m->stage.param[i];
		const char *at = strstr(p->name, ".lora_");
		uint64_t n;
		if (!at)
			continue;
		const float *want = golden_f32(g,
					       golden_name(g, "%s.grad.%.*s.%c", name,
							   (int)(at - p->name), p->name, at[6]),
					       &n);
		float *got = mem_array(n, 4);
		assert_true(got && n == (uint64_t)param_count(p));
		must(dev_download(got, DEV_REF(p->grad, 0), n * 4, &e), &e);
		for (uint64_t k = 0; k < n; k++)
			got[k] /= (float)rows;
		worst = fmax(worst, golden_relative(got, want, n));
		mem_free(got);
		seen++;
	}
	assert_int_equal(seen, 2 * 7 * 2);
	return worst;
}

static void check_case(const struct row *r, bool recompute)
{
	struct golden g;
	struct golden_model m;
	int64_t trained;
	char head[32];
	open_model(&g, &m, &r->o, recompute);
	snprintf(head, sizeof head, "%s.", r->data);
	struct stage_batch b = golden_batch(&g, head, &trained);
	struct pairs p = { 0 };
	uint64_t s;
	p.answer = (int32_t *)golden_i32(&g, golden_name(&g, "%s.answer", r->data), &s);
	p.good = (int32_t *)golden_i32(&g, golden_name(&g, "%s.good", r->data), NULL);
	const double *ref = golden_f64(&g, golden_name(&g, "%s.ref", r->data), NULL),
		     *loss = golden_f64(&g, golden_name(&g, "%s.loss", r->name), NULL),
		     *reward = golden_f64(&g, golden_name(&g, "%s.reward", r->name), NULL);
	assert_int_equal(s, (uint64_t)b.nseq);
	b.nrows = b.nseq / 2;
	b.pairs = &p;
	/* the reference: the same passes without the adapters */
	double own[16] = { 0 };
	p.ref = own;
	b.base = true;
	run(&m, &b);
	double far = 0;
	for (uint64_t i = 0; i < s; i++)
		far = fmax(far, fabs(m.slot.pair[i] - ref[i]));
	assert_true(far <= 1e-4);
	memcpy(own, m.slot.pair, s * sizeof *own);
	stage_end(&m.slot);
	if (golden_has(&g, golden_name(&g, "%s.ref", r->name)))
		p.ref = (double *)golden_f64(&g, golden_name(&g, "%s.ref", r->name), NULL);

	b.base = false;
	run(&m, &b); /* evaluated */
	const double evaluated = m.slot.loss;
	stage_end(&m.slot);
	b.train = true;
	run(&m, &b);
	const double rows = (double)b.nrows, got = m.slot.loss / rows;
	const struct prefer_score *sc = &m.slot.score;
	assert_true(m.slot.loss == evaluated);
	const double worst = worst_gradient(&g, &m, r->name, b.nrows);
	double rewards = 0;
	for (int k = 0; k < 2; k++)
		rewards = fmax(rewards, fabs(sc->reward[k] / (double)sc->rewarded[k] - reward[k]));
	printf("%-10s loss %.6f (%.1e), rewards %.1e, reference %.1e, gradients %.1e\n", r->name,
	       got, fabs(got - *loss) / *loss, rewards, far, worst);
	if (!(fabs(got - *loss) <= 2e-5 * *loss) || !(rewards <= 1e-4) || !(worst <= 2e-4))
		fail_msg("%s: loss %.8f instead of %.8f, gradients %g off", r->name, got, *loss,
			 worst);
	golden_model_close(&m);
	golden_close(&g);
}

static void against_trl(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		check_case(&cases[i], false);
		check_case(&cases[i], true);
	}
}

/* ---- derivatives ---- */

enum { ROWS = 4 };

static double loss_of(const struct prefer *row, const struct prefer_options *o, const double *logp,
		      double nll, double *dlogp, double *dnll)
{
	static const double ref[2 * ROWS] = { -9, -12, -7, -3, -20, -19, -4, -6 };
	static const int64_t count[2 * ROWS] = { 4, 6, 2, 1, 9, 9, 3, 2 };
	static const int32_t good[ROWS] = { 1, 0, 0, 1 };
	double d[2 * ROWS] = { 0 }, reward[2 * ROWS] = { 0 };
	const struct prefer_pass p = { ROWS, logp, ref, count, good, nll, 18 };
	struct prefer_sums s = { .dlogp = d, .reward = reward };
	row->sums(o, &p, &s);
	if (dlogp)
		memcpy(dlogp, d, sizeof d);
	if (dnll)
		*dnll = s.dnll;
	return s.loss;
}

static void derivatives(void **state)
{
	(void)state;
	const double h = 1e-5;
	for (size_t i = 0; prefer_at(i); i++) {
		const struct prefer *row = prefer_at(i);
		const struct prefer_options o = { .beta = 0.3,
						  .smoothing = 0.1,
						  .likelihood = 0.6,
						  .gamma = 0.4,
						  .good = 1.1,
						  .bad = 0.7 };
		/* the mismatched answers are below the reference, so KTO's baseline is 0 */
		double logp[2 * ROWS] = { -8, -13, -9, -4, -18, -21, -5, -7 }, d[2 * ROWS], dnll;
		const double at = loss_of(row, &o, logp, 30, d, &dnll);
		double worst = fabs((loss_of(row, &o, logp, 30 + h, NULL, NULL) - at) / h - dnll);
		for (int k = 0; k < 2 * ROWS; k++) {
			const double x = logp[k];
			logp[k] = x + h;
			const double up = loss_of(row, &o, logp, 30, NULL, NULL);
			logp[k] = x - h;
			const double down = loss_of(row, &o, logp, 30, NULL, NULL);
			logp[k] = x;
			worst = fmax(worst, fabs((up - down) / (2 * h) - d[k]));
		}
		printf("%-6s derivatives %.1e\n", row->name, worst);
		if (!(worst <= 1e-6))
			fail_msg("%s: a derivative is %g off", row->name, worst);
	}
	assert_null(prefer_find(""));
	assert_null(prefer_find("none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(against_trl),
					    cmocka_unit_test(derivatives) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
