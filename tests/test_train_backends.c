/* test_train_backends.c - a whole training job on every backend that is there, and a pipeline of a CPU and an OpenCL stage, against the
 * CPU's losses. Without an OpenCL device both are skipped. */
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "support/tiny.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 6, LAYERS = 2 };

struct record {
	double loss[STEPS];
	size_t n;
};

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(r->n < STEPS);
	r->loss[r->n++] = s->loss;
	return 0;
}

static void run(const struct tiny *t, const char *name, const char *device, const struct placement *p, struct record *r)
{
	char key[64];
	snprintf(key, sizeof key, "device=%s", device);
	const char *const more[] = { key, NULL };
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res = { 0 };
	const struct train_sink sink = { .ctx = r, .step = on_step };
	const struct train_options o = { .place = p, .act = DT_F32 };
	if (train_run(c, &o, &sink, &res, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	config_free(c);
	assert_int_equal(r->n, STEPS);
}

static void close_to(const struct record *want, const struct record *got, const char *what)
{
	double worst = 0;
	for (size_t i = 0; i < STEPS; i++) {
		const double d = fabs(got->loss[i] / want->loss[i] - 1);
		if (!(d <= 1e-4))
			fail_msg("%s: step %zu: loss %.9g, on the CPU %.9g", what, i + 1, got->loss[i], want->loss[i]);
		worst = fmax(worst, d);
	}
	printf("%-14s ok: losses within %.2e of the CPU's, %.4f to %.4f\n", what, worst, got->loss[0], got->loss[STEPS - 1]);
}

static int opencl_devices(void)
{
	struct err e = { 0 };
	const int n = backend_find("opencl")->count(&e);
	if (n <= 0)
		printf("opencl: skipped (%s)\n", n < 0 ? e.msg : "no such device");
	return n;
}

static void opencl_trains_like_the_cpu(void **state)
{
	(void)state;
	struct tiny t;
	struct record cpu = { 0 }, one = { 0 }, mixed = { 0 };
	static const char *devices[] = { "cpu", "opencl:0" };
	static const struct placement place = {
		.stages = 2, .chunks = 1, .first = { 0, 1, LAYERS }, .device = devices, .schedule = "1f1b"
	};
	if (opencl_devices() <= 0)
		skip();
	tiny_make(&t, LAYERS, 30);
	run(&t, "cpu", "cpu", NULL, &cpu);
	assert_true(cpu.loss[STEPS - 1] < cpu.loss[0]);
	run(&t, "opencl", "opencl:0", NULL, &one);
	close_to(&cpu, &one, "opencl:0");
	run(&t, "mixed", "cpu", &place, &mixed);
	close_to(&cpu, &mixed, "cpu | opencl:0");
	tiny_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(opencl_trains_like_the_cpu) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
