/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_kinds.c - kinds of blocks and optimizers of one's own: C functions, and texts of kernels
 * on every device. */
#include "support/api.h"

#include "base/err.h"
#include "dev/dev.h"
#include "support/cards.h"

#include <stdio.h>
#include <stdlib.h>

static int as_it_came(const double *set, int ndim, const int64_t *in, int *ndim_p, int64_t *out)
{
	*ndim_p = ndim;
	memcpy(out, in, (size_t)ndim * sizeof *in);
	return set[0] > 5;
}

static int one_weight(const double *set, int ndim, const int64_t *in, hs_kind_param *p)
{
	(void)set;
	(void)ndim;
	p[0] = (hs_kind_param){ "weight", in[0], 0, 1 };
	return 1;
}

static int one_twice(const double *set, int ndim, const int64_t *in, hs_kind_param *p)
{
	one_weight(set, ndim, in, p);
	p[1] = p[0];
	return 2;
}

static int times(const hs_pass *p)
{
	for (uint64_t i = 0; i < p->rows * p->in; i++)
		p->y[i] = p->x[i] * p->param[0][i % p->in] * (float)p->set[0];
	return p->set[0] < 0 ? 7 : 0;
}

static int times_back(const hs_pass *p)
{
	for (uint64_t i = 0; i < p->rows * p->in; i++) {
		if (p->dx)
			p->dx[i] = p->dy[i] * p->param[0][i % p->in] * (float)p->set[0];
		if (p->dparam[0])
			p->dparam[0][i % p->in] += p->dy[i] * p->x[i] * (float)p->set[0];
	}
	return 0;
}

static void blocks_of_ones_own(void **state)
{
	static const char *const cpus[] = { "cpu", "cpu", "cpu" }, *const cl[] = { "opencl:0" };
	static const char *const set[] = { "max_steps=6", "micro_batch_size=10",
					   "compute_dtype=bfloat16" };
	hs_error e;
	hs_model *m;
	hs_result r, s;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	hs_kind k = hs_kind_init();
	(void)state;
	expect(hs_block_register(&k, &e), &e, "needs a name");
	k.name = "times";
	expect(hs_block_register(&k, &e), &e, "needs version, shape, and forward and backward");
	k.version = "1";
	k.setting[0] = (hs_setting){ "by", -10, 10, NAN };
	k.shape = as_it_came;
	k.params = one_weight;
	k.forward = times;
	k.backward = times_back;
	MUST(hs_block_register(&k, &e));
	MUST(hs_block_register(&k, &e)); /* the same again */
	k.version = "2";
	expect(hs_block_register(&k, &e), &e, "there is a kind of block 'times' already");
	k.name = "twice";
	k.params = one_twice;
	MUST(hs_block_register(&k, &e));
	expect(hs_model_new("input 6; twice 2; mse", 1, &m, &e), &e,
	       "'twice' has the parameter 'weight' twice");
	k.name = "linear";
	expect(hs_block_register(&k, &e), &e, "there is a kind of block 'linear' already");
	expect(hs_model_new("input 6; times 6; mse", 1, &m, &e), &e,
	       "'times' needs rows of the shape that its shape function takes");
	expect(hs_model_new("input 6; times; mse", 1, &m, &e), &e, "'times' needs 'by'");
	expect(hs_plugin_load("/nowhere.so", &e), &e, "plugin /nowhere.so");
	d.count = 30;
	d.get = small_sample;
	o.set = set;
	o.sets = 2;
	o.device = cpus;
	MUST(hs_model_new("input 6; linear 8; times 2; tanh; times by=0.5; linear 5; cross_entropy",
			  1, &m, &e));
	for (int how = 0; how < 2; how++) { /* in float32 and in bfloat16 */
		o.sets = 2 + (size_t)how;
		o.devices = 1;
		MUST(hs_train(m, &d, &o, &r, &e));
		assert_true(r.last_loss < r.first_loss);
		hs_result_release(&r);
	}
	MUST(hs_model_free(m, &e));
	o.sets = 2;
	for (size_t n = 1; n <= 3; n += 2) {
		o.devices = n;
		MUST(hs_model_new("input 6; linear 8; times 2; tanh; times by=0.5; linear 5; "
				  "cross_entropy",
				  1, &m, &e));
		MUST(hs_train(m, &d, &o, n == 1 ? &r : &s, &e));
		MUST(hs_model_free(m, &e));
	}
	assert_memory_equal(r.loss, s.loss, r.steps * sizeof *r.loss);
	hs_result_release(&r);
	hs_result_release(&s);
	MUST(hs_model_new("input 6; linear 8; times -2; linear 5; cross_entropy", 1, &m, &e));
	expect(hs_train(m, &d, &o, NULL, &e), &e, "of the block 'times' failed with 7");
	MUST(hs_model_free(m, &e));
	MUST(hs_model_new("input 6; linear 8; times 2; linear 5; cross_entropy", 1, &m, &e));
	o.device = cl;
	o.devices = 1;
	if (hs_train(m, &d, &o, NULL, &e) >= 0 || !strstr(e.text, "has no such devices"))
		printf("on OpenCL: %s\n", e.text);
	if (strstr(e.text, "'times'"))
		assert_non_null(strstr(e.text, "which the device 'opencl' cannot run"));
	MUST(hs_model_free(m, &e));
}

/* ---- texts of kernels ---- */

/* As times(). */
static const char times_text[] =
	"FORWARD {\n"
	"	AT(T, y); AT(T, x); AT(f32, p0);\n"
	"	for (i64 j = LID; j < in; j += WG)\n"
	"		st(y, GROUP * in + j, ld(x, GROUP * in + j) * p0[j] * s0);\n"
	"}\n"
	"BACKWARD {\n"
	"	AT(T, dx); AT(T, dy); AT(f32, p0);\n"
	"	for (i64 j = LID; j < in; j += WG)\n"
	"		st(dx, GROUP * in + j, ld(dy, GROUP * in + j) * p0[j] * s0);\n"
	"}\n"
	"PARAMS {\n"
	"	AT(f32, d); AT(T, dy); AT(T, x);\n"
	"	LOCAL f32 s[WG];\n"
	"	f32 sum = 0;\n"
	"	for (i64 r = LID; r < rows; r += WG)\n"
	"		sum += ld(dy, r * in + GROUP) * ld(x, r * in + GROUP) * s0;\n"
	"	sum = group_sum(s, sum);\n"
	"	if (LID == 0) d[GROUP] += sum;\n"
	"}\n";

static hs_kind kind_of(const char *name, const char *words)
{
	hs_kind k = hs_kind_init();
	k.name = name;
	k.version = "1";
	k.setting[0] = (hs_setting){ "by", -10, 10, 2 };
	k.shape = as_it_came;
	k.params = one_weight;
	k.text = words;
	k.lanes = HS_ROWS;
	return k;
}

/* The losses of 6 steps on these devices; false, and the error: it did not train. */
static bool losses_on(const char *text, const char *const *device, size_t devices,
		      const char *optimizer, double loss[6], hs_error *out)
{
	const char *set[] = { "max_steps=6", "micro_batch_size=10", optimizer };
	hs_error e;
	hs_model *m;
	hs_result r;
	hs_data d = hs_data_init();
	hs_options o = hs_options_init();
	d.count = 30;
	d.get = small_sample;
	o.set = set;
	o.sets = COUNT(set);
	o.device = device;
	o.devices = devices;
	MUST(hs_model_new(text, 1, &m, &e));
	const bool ok = hs_train(m, &d, &o, &r, out) == 0;
	for (int i = 0; ok && i < 6; i++)
		loss[i] = r.loss[i];
	if (ok)
		hs_result_release(&r);
	MUST(hs_model_free(m, &e));
	return ok;
}

static void close_to(const double want[6], const double got[6], const char *what)
{
	double worst = 0;
	for (int i = 0; i < 6; i++)
		worst = fabs(got[i] - want[i]) > worst ? fabs(got[i] - want[i]) : worst;
	printf("%-14s losses differ by at most %.1e\n", what, worst);
	assert_true(worst < 2e-5);
}

/* Every device there is but the processor, and "cpu". */
static size_t all_devices(char spec[16][DEV_SPEC])
{
	size_t n = 0;
	for (size_t i = 0; backends[i]; i++) {
		struct err e = { 0 };
		const int count = strcmp(backends[i]->name, "null") ? backends[i]->count(&e) : 0;
		for (int k = 0; k < count && n < 16; k++)
			snprintf(spec[n++], DEV_SPEC, "%s:%d", backends[i]->name, k);
	}
	return n;
}

static void a_text_runs_on_every_device(void **state)
{
	static const char with_functions[] =
		"input 6; linear 8; times 2; tanh; linear 5; cross_entropy",
			  with_text[] =
				  "input 6; linear 8; rowtimes 2; tanh; linear 5; cross_entropy";
	char spec[16][DEV_SPEC];
	double want[6], got[6];
	hs_error e;
	hs_kind k = kind_of("rowtimes", times_text);
	const size_t n = all_devices(spec);
	(void)state;
	MUST(hs_block_register(&k, &e));
	MUST(hs_block_register(&k, &e)); /* the same again */
	k.text = "FORWARD {} BACKWARD {} PARAMS {}";
	expect(hs_block_register(&k, &e), &e, "there is a kind of block 'rowtimes' already");
	if (!losses_on(with_functions, (const char *const[]){ "cpu" }, 1, "seed=1", want, &e))
		fail_msg("%s", e.text);
	for (size_t i = 0; i < n; i++) {
		const char *const one[] = { spec[i] }, *const two[] = { "cpu", spec[i] };
		if (!losses_on(with_text, one, 1, "seed=1", got, &e))
			fail_msg("%s", e.text);
		close_to(want, got, spec[i]);
		if (!losses_on(with_text, two, 2, "seed=1", got, &e))
			fail_msg("%s", e.text);
		close_to(want, got, "and with cpu");
	}
}

static void texts_that_are_refused(void **state)
{
	static const char text[] = "input 6; linear 8; broken; linear 5; cross_entropy";
	char spec[16][DEV_SPEC];
	double loss[6];
	hs_error e;
	hs_kind k = kind_of("broken", "FORWARD { no_such_function(rows); } BACKWARD {} PARAMS {}");
	const size_t n = all_devices(spec);
	(void)state;
	k.lanes = 7;
	expect(hs_block_register(&k, &e), &e, "`lanes` of the kind 'broken' is");
	k.lanes = HS_LANES;
	k.forward = times;
	expect(hs_block_register(&k, &e), &e, "needs version, shape, and forward and backward");
	k.forward = NULL;
	k.size = offsetof(hs_kind, text); /* a program of version 2: it has no text */
	expect(hs_block_register(&k, &e), &e, "needs version, shape, and forward and backward");
	k.size = 8;
	expect(hs_block_register(&k, &e), &e, "the kind needs `size`");
	k.size = sizeof k;
	MUST(hs_block_register(&k, &e));
	for (size_t i = 0; i < n; i++) {
		const char *const one[] = { spec[i] };
		char backend[DEV_SPEC];
		snprintf(backend, sizeof backend, "%.*s", (int)strcspn(spec[i], ":"), spec[i]);
		if (losses_on(text, one, 1, "seed=1", loss, &e))
			fail_msg("%s trained a text that does not compile", spec[i]);
		expect(e.code, &e, "the block 'broken'");
		expect(e.code, &e, "no_such_function");
		expect(e.code, &e, backend);
	}
}

/* ---- an optimizer ---- */

static int plain_step(const hs_update *u)
{
	for (uint64_t i = 0; i < u->count; i++) {
		u->state[0][i] = 0.5f * u->state[0][i] + u->grad[i] * u->scale;
		u->value[i] -= u->learning_rate * u->state[0][i];
	}
	return 0;
}

static void an_optimizer_on_every_device(void **state)
{
	static const char text[] = "input 6; linear 8; tanh; linear 5; cross_entropy";
	char spec[16][DEV_SPEC];
	double want[6], got[6];
	hs_error e;
	hs_optimizer o = hs_optimizer_init();
	const size_t n = all_devices(spec);
	(void)state;
	o.name = "halves";
	o.version = "1";
	o.cut = HS_CUT_BLOCK;
	o.states = 1;
	o.state[0] = "sum";
	o.update = plain_step;
	MUST(hs_optimizer_register(&o, &e));
	if (!losses_on(text, (const char *const[]){ "cpu" }, 1, "optimizer=halves", want, &e))
		fail_msg("%s", e.text);
	assert_true(want[5] != want[0]);
	for (size_t i = 0; i < n; i++) {
		const char *const one[] = { spec[i] };
		if (!losses_on(text, one, 1, "optimizer=halves", got, &e))
			fail_msg("%s", e.text);
		close_to(want, got, spec[i]);
	}
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_ones_own),
		cmocka_unit_test(a_text_runs_on_every_device),
		cmocka_unit_test(texts_that_are_refused),
		cmocka_unit_test(an_optimizer_on_every_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
