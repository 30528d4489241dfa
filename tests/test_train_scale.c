/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_scale.c - dynamic loss scaling: its rule, and training in float16 on an OpenCL device:
 * the CPU's losses, an overflow, a continuation. Without such a device the last ones are
 * skipped. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "file/atomic.h"
#include "job/checkpoint_check.h"
#include "support/tiny.h"
#include "optim/loss_scale.h"
#include "proto/protocol.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 8, HALF = 4, LAYERS = 2 };

struct record {
	struct train_step step[STEPS + 1]; /* by number, from 1 */
	uint64_t last;
};

static void the_rule_is_that_of_torch(void **state)
{
	struct loss_scale s;
	(void)state;
	loss_scale_begin(&s, 1);
	assert_true(s.scale == 65536 && !s.good);
	loss_scale_begin(&s, 100); /* a power of two, at most 65536 / 100 */
	assert_true(s.scale == 512);
	loss_scale_begin(&s, 1u << 30);
	assert_true(s.scale == 1);
	s = (struct loss_scale){ .scale = 8 };
	for (int i = 0; i < 1999; i++)
		assert_false(loss_scale_update(&s, true));
	assert_true(s.scale == 8 && s.good == 1999);
	loss_scale_update(&s, true);
	assert_true(s.scale == 16 && s.good == 0);
	s.good = 5;
	assert_true(loss_scale_update(&s, false));
	assert_true(s.scale == 8 && s.good == 0);
	s.scale = 1;
	assert_false(loss_scale_update(&s, false)); /* not the scale's fault */
	assert_true(s.scale == 1);
}

static void a_batch_carries_a_scale_that_is_one(void **state)
{
	int32_t id[] = { 1, 2 }, label[] = { 2, -100 };
	uint32_t start[] = { 0, 2 };
	struct microbatch mb = { .n = 2, .nseq = 1 };
	static const float bad[] = { 0, -1, NAN, INFINITY, 0x1p41f };
	unsigned char out[256];
	struct batch_store b = { 0 };
	struct err e = { 0 };
	size_t n;
	(void)state;
	mb.id = (void *)id;
	mb.label = (void *)label;
	mb.start = (void *)start;
	assert_int_equal(
		batch_write(&mb, true, 1, 1, 1024, NULL, true, true, out, sizeof out, &n, &e), 0);
	assert_int_equal(batch_read(out, n, true, true, &b, &e), 0);
	assert_true(b.head.scale == 1024);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(batch_write(&mb, true, 1, 1, bad[i], NULL, true, true, out,
					     sizeof out, &n, &e),
				 0);
		assert_int_equal(batch_read(out, n, true, true, &b, &e), ERR_PROTOCOL);
	}
	mem_free(b.mem);
}

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(s->step <= STEPS);
	r->step[s->step] = *s;
	r->last = s->step;
	return 0;
}

static void train(const struct tiny *t, const char *name, const char *device, const char *dtype,
		  int steps, bool resume, struct record *r)
{
	char dev[64], type[64], most[64], base[64];
	snprintf(dev, sizeof dev, "device=%s", device);
	snprintf(type, sizeof type, "compute_dtype=%s", dtype);
	snprintf(most, sizeof most, "max_steps=%d", steps);
	snprintf(base, sizeof base, "lr_scheduler=constant");
	const char *const more[] = { dev,
				     type,
				     most,
				     base,
				     "max_nonfinite_steps=2",
				     resume ? "resume_from_checkpoint=latest" : NULL,
				     NULL };
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res = { 0 };
	const struct train_sink sink = { .ctx = r, .step = on_step };
	if (train_run(c, &(struct train_options){ 0 }, &sink, &res, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	config_free(c);
	assert_int_equal(r->last, steps);
}

static bool no_opencl(void)
{
	struct err e = { 0 };
	const int n = backend_find("opencl")->count(&e);
	if (n <= 0)
		printf("opencl: skipped (%s)\n", n < 0 ? e.msg : "no such device");
	return n <= 0;
}

/* Puts another loss scale into the newest checkpoint. */
static void change_scale(const struct tiny *t, const char *run, int step, double scale)
{
	char name[128], path[512];
	struct err e = { 0 };
	json_t *doc;
	size_t n;
	snprintf(name, sizeof name, "%s/checkpoints/step-%06d/trainer_state.json", run, step);
	char *old = tiny_read(t, name, &n);
	assert_int_equal(json_parse_text(old, n, name, &doc, &e), 0);
	assert_true(json_number_value(json_object_get(doc, "loss_scale")) >= 1);
	json_object_set_new(doc, "loss_scale", json_real(scale));
	json_object_del(doc, "hash");
	char *text = json_dumps(doc, JSON_INDENT(1));
	struct buf sealed = BUF_INIT;
	buf_add(&sealed, text, strlen(text) - strlen("\n}"));
	checkpoint_seal(&sealed);
	snprintf(path, sizeof path, "%s/%s", t->dir, name);
	assert_int_equal(atomic_write_file(path, sealed.p, sealed.n, &e), 0);
	buf_release(&sealed);
	free(text);
	mem_free(old);
	json_decref(doc);
}

static void float16_trains_like_float32(void **state)
{
	struct tiny t;
	struct record cpu = { 0 }, f16 = { 0 }, parts = { 0 };
	double worst = 0;
	(void)state;
	if (no_opencl())
		skip();
	tiny_make(&t, LAYERS, 30);
	train(&t, "cpu", "cpu", "float32", STEPS, false, &cpu);
	train(&t, "f16", "opencl:0", "float16", STEPS, false, &f16);
	assert_true(cpu.step[STEPS].loss < cpu.step[1].loss);
	for (int i = 1; i <= STEPS; i++) {
		const double d = fabs(f16.step[i].loss / cpu.step[i].loss - 1);
		if (!(d <= 2e-3) || f16.step[i].skipped)
			fail_msg("step %d: loss %.9g%s, on the CPU %.9g", i, f16.step[i].loss,
				 f16.step[i].skipped ? " (skipped)" : "", cpu.step[i].loss);
		/* the scale is gone again where the norm is shown */
		assert_true(fabs(f16.step[i].grad_norm / cpu.step[i].grad_norm - 1) < 0.05);
		assert_true(f16.step[i].loss_scale >= 1 && cpu.step[i].loss_scale == 0);
		worst = fmax(worst, d);
	}
	printf("float16 on opencl:0 ok: losses within %.2e of the CPU's, loss scale %g\n", worst,
	       f16.step[STEPS].loss_scale);
	/* a continuation is the same run */
	train(&t, "parts", "opencl:0", "float16", HALF, false, &parts);
	train(&t, "parts", "opencl:0", "float16", STEPS, true, &parts);
	for (int i = 1; i <= STEPS; i++)
		assert_true(parts.step[i].loss == f16.step[i].loss &&
			    parts.step[i].loss_scale == f16.step[i].loss_scale);
	tiny_remove(&t);
}

static void an_overflow_halves_the_scale(void **state)
{
	struct tiny t;
	struct record r = { 0 };
	(void)state;
	if (no_opencl())
		skip();
	tiny_make(&t, LAYERS, 30);
	train(&t, "run", "opencl:0", "float16", 2, false, &r);
	const double fits = r.step[2].loss_scale;
	change_scale(&t, "run", 2, 0x1p18);
	/* more steps in a row than max_nonfinite_steps (2) are skipped, and the run goes on */
	train(&t, "run", "opencl:0", "float16", STEPS, true, &r);
	int skipped = 0;
	double scale = 0x1p18;
	for (int i = 3; i <= STEPS; i++) {
		assert_true(r.step[i].loss_scale == scale);
		assert_true(isfinite(r.step[i].loss));
		assert_true(!r.step[i].skipped || scale > fits);
		if (r.step[i].skipped) {
			skipped++;
			scale /= 2;
			/* nothing was learned: the batches differ, the weights do not */
			assert_false(isfinite(r.step[i].grad_norm));
		}
	}
	printf("float16: %d steps skipped from a loss scale of 2^18 down to %g\n", skipped, scale);
	assert_true(skipped >= 3);
	assert_false(r.step[STEPS].skipped);
	tiny_remove(&t);
}

static void the_cpu_has_no_float16(void **state)
{
	struct tiny t;
	struct err e = { 0 };
	struct train_result res;
	(void)state;
	tiny_make(&t, 1, 10);
	struct config *c = tiny_config(
		&t, "run", (const char *const[]){ "device=cpu", "compute_dtype=float16", NULL });
	assert_int_equal(
		train_run(c, &(struct train_options){ 0 }, &(struct train_sink){ 0 }, &res, &e),
		ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "float16"));
	config_free(c);
	tiny_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rule_is_that_of_torch),
		cmocka_unit_test(a_batch_carries_a_scale_that_is_one),
		cmocka_unit_test(float16_trains_like_float32),
		cmocka_unit_test(an_overflow_halves_the_scale),
		cmocka_unit_test(the_cpu_has_no_float16),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
