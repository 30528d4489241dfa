/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_backends.c - a whole training job on every backend that is there, a pipeline of a CPU
 * stage and one of that backend, and groups of unlike devices, against the CPU's losses. Where
 * there is no CUDA or HIP card, a stand-in runs their host code and the kernels' text
 * (support/cards.h). */
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "support/cards.h"
#include "support/tiny.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 6, LAYERS = 4 };

struct record {
	double loss[STEPS];
	size_t n;
	int worker;                /* whose spans are counted */
	int spans[INSTR_STEP + 1]; /* by kind */
};

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(r->n < STEPS);
	r->loss[r->n++] = s->loss;
	return 0;
}

static void on_spans(void *ctx, int worker, uint64_t step, const struct span *v, size_t n,
		     int64_t error)
{
	struct record *r = ctx;
	(void)step;
	(void)error;
	for (size_t i = 0; i < n && worker == r->worker; i++) {
		assert_true(v[i].begin <= v[i].ready && v[i].ready <= v[i].end);
		assert_true(v[i].kind <= INSTR_STEP);
		r->spans[v[i].kind]++;
	}
}

static void run(const struct tiny *t, const char *name, const char *device,
		const struct placement *p, struct record *r)
{
	char key[64];
	snprintf(key, sizeof key, "device=%s", device);
	const char *const more[] = { key, "profile=none", NULL };
	struct config *c = tiny_config(t, name, more);
	struct err e = { 0 };
	struct train_result res = { 0 };
	const struct train_sink sink = { .ctx = r, .step = on_step, .spans = on_spans };
	const struct train_options o = { .place = p, .act = DT_F32, .trace = true };
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
			fail_msg("%s: step %zu: loss %.9g, on the CPU %.9g", what, i + 1,
				 got->loss[i], want->loss[i]);
		worst = fmax(worst, d);
	}
	printf("%-14s ok: losses within %.2e of the CPU's, %.4f to %.4f\n", what, worst,
	       got->loss[0], got->loss[STEPS - 1]);
}

static bool there(const char *backend)
{
	struct err e = { 0 };
	const int n = backend_find(backend)->count(&e);
	if (n <= 0)
		printf("%s: skipped (%s)\n", backend, n < 0 ? e.msg : "no such device");
	return n > 0;
}

/* A device whose transfers run beside its kernels, with neighbours on both sides: every tensor
 * comes and goes once, as with a processor there. */
static void in_the_middle(const struct tiny *t, const char *backend, const char *spec,
			  const struct record *cpu)
{
	static const struct placement place[] = {
		{ .stages = 3, .chunks = 1, .first = { 0, 1, 3, LAYERS }, .schedule = "1f1b" },
		{ .stages = 3, .chunks = 1, .first = { 0, 1, 3, LAYERS }, .schedule = "gpipe" },
		{ .stages = 2,
		  .chunks = 2,
		  .first = { 0, 1, 2, 3, LAYERS },
		  .schedule = "interleaved" },
	};
	for (size_t i = 0; i < ARRAY_LEN(place); i++) {
		const char *devices[] = { "cpu", "cpu", "cpu" };
		char label[64];
		struct placement p = place[i];
		struct record want = { .worker = 1 }, got = { .worker = 1 };
		p.device = devices;
		snprintf(label, sizeof label, "cpus-%s-%zu", backend, i);
		run(t, label, "cpu", &p, &want);
		devices[1] = spec;
		snprintf(label, sizeof label, "%s-%s", backend, p.schedule);
		run(t, label, "cpu", &p, &got);
		close_to(cpu, &got, label);
		assert_true(want.spans[INSTR_SEND_ACT] >= STEPS &&
			    want.spans[INSTR_RECV_GRAD] >= STEPS);
		assert_memory_equal(want.spans, got.spans, sizeof want.spans);
	}
}

/* A group of unlike devices, and one of two cards: shares 2 and 1 of three microbatches, alone and
 * behind a stage of another group. A trained run's losses depend on every gradient before them. */
static void groups(const struct tiny *t, const struct record *cpu, const char *a, const char *b)
{
	static const char *const schedule[] = { "1f1b", "gpipe" };
	static const int members[2][2] = { { 2 }, { 1, 2 } },
			 share[2][3] = { { 2, 1 }, { 1, 2, 1 } };
	const char *device[2][3] = { { a, b }, { "cpu", a, b } };
	static int number;
	for (int stages = 1; stages <= 2; stages++) {
		const int k = stages - 1;
		char name[64], label[96];
		struct record got = { 0 };
		const struct placement p = { .stages = stages,
					     .chunks = 1,
					     .first = { 0, stages > 1 ? 1 : LAYERS, LAYERS },
					     .members = members[k],
					     .share = share[k],
					     .device = device[k],
					     .schedule = schedule[k] };
		snprintf(label, sizeof label, "%s[%s, %s]", stages > 1 ? "cpu | " : "", a, b);
		snprintf(name, sizeof name, "group-%d", number++);
		run(t, name, "cpu", &p, &got);
		close_to(cpu, &got, label);
	}
}

static void every_backend_trains_like_the_cpu(void **state)
{
	static const char *const names[] = { "opencl", "cuda", "hip" };
	struct tiny t;
	struct record cpu = { 0 };
	struct err e = { 0 };
	(void)state;
	tiny_make(&t, LAYERS, 30);
	run(&t, "cpu", "cpu", NULL, &cpu);
	assert_true(cpu.loss[STEPS - 1] < cpu.loss[0]);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char spec[32], label[64];
		snprintf(spec, sizeof spec, "%s:0", names[i]);
		const char *devices[] = { "cpu", spec };
		const struct placement place = { .stages = 2,
						 .chunks = 1,
						 .first = { 0, 1, LAYERS },
						 .device = devices,
						 .schedule = "1f1b" };
		struct record one = { 0 }, mixed = { 0 };
		if (!there(names[i]))
			continue;
		run(&t, names[i], spec, NULL, &one);
		close_to(&cpu, &one, spec);
		snprintf(label, sizeof label, "mixed-%s", names[i]);
		run(&t, label, "cpu", &place, &mixed);
		snprintf(label, sizeof label, "cpu | %s", spec);
		close_to(&cpu, &mixed, label);
		if (strcmp(names[i], "hip")) /* the same code as for cuda */
			in_the_middle(&t, names[i], spec, &cpu);
		groups(&t, &cpu, "cpu", spec);
	}
	/* the drivers behind the first one of OpenCL: PoCL and Mesa's, in tests */
	for (int i = 1; i < backend_find("opencl")->count(&e); i++) {
		char spec[32];
		struct record one = { 0 };
		snprintf(spec, sizeof spec, "opencl:%d", i);
		run(&t, spec, spec, NULL, &one);
		close_to(&cpu, &one, spec);
	}
	tiny_remove(&t);
}

/* Two cards of one kind in a group. */
static void a_group_of_two_cards(void **state)
{
	const char *library = getenv("HS_CUDA_LIBRARY");
	struct tiny t;
	struct record cpu = { 0 };
	(void)state;
	if (library && strstr(library, "fake_rt.so"))
		setenv("FAKE_RT", "devices=2", 1);
	struct err e = { 0 };
	if (backend_find("cuda")->count(&e) < 2) {
		printf("skipped: there is no second cuda device\n");
		skip();
	}
	tiny_make(&t, LAYERS, 30);
	run(&t, "cpu", "cpu", NULL, &cpu);
	groups(&t, &cpu, "cuda:0", "cuda:1");
	tiny_remove(&t);
}

/* What goes wrong with the stand-in, and after how many steps. It is changed in place: another
 * thread may be reading it. */
static char faults[64] = "FAKE_RT=";
static const char *later;

static int on_step_then(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)s;
	(void)e;
	if (++r->n == 2 && later)
		snprintf(faults, sizeof faults, "FAKE_RT=%s", later);
	return 0;
}

/* A card that has too little memory, hangs, or is lost: the job ends with a line that names the
 * card. */
static void a_job_on_a_bad_card_ends(void **state)
{
	static const struct {
		const char *now, *later, *says, *too;
	} row[] = {
		{ "memory=1 noblas", NULL, "cuda:0 (Fake card 0): a buffer of",
		  "MiB must be saved" },
		{ "", "hang=1", "cuda:0 (Fake card 0) does not answer", "HS_DEVICE_TIMEOUT" },
		{ "", "lost=1", "cuda:0 (Fake card 0)", "ILLEGAL_ADDRESS" },
	};
	static const char *const more[] = { "device=cuda:0", NULL };
	const char *library = getenv("HS_CUDA_LIBRARY");
	struct tiny t;
	(void)state;
	if (!library || !strstr(library, "fake_rt.so")) {
		printf("skipped: the stand-in for a card is not in use\n");
		skip();
	}
	tiny_make(&t, LAYERS, 30);
	setenv("HS_DEVICE_TIMEOUT", "1", 1);
	assert_int_equal(putenv(faults), 0);
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		char name[32];
		snprintf(name, sizeof name, "bad-%zu", i);
		struct config *c = tiny_config(&t, name, more);
		struct record r = { 0 };
		struct err e = { 0 };
		struct train_result res = { 0 };
		const struct train_sink sink = { .ctx = &r, .step = on_step_then };
		const struct train_options o = { .act = DT_F32 };
		later = row[i].later;
		snprintf(faults, sizeof faults, "FAKE_RT=%s", row[i].now);
		assert_true(train_run(c, &o, &sink, &res, &e) < 0);
		if (!strstr(e.msg, row[i].says) || !strstr(e.msg, row[i].too))
			fail_msg("%s: %s", row[i].says, e.msg);
		assert_int_equal(r.n, row[i].later ? 2 : 0);
		printf("ok: %s\n", e.msg);
		snprintf(faults, sizeof faults, "FAKE_RT=");
		config_free(c);
	}
	unsetenv("HS_DEVICE_TIMEOUT");
	tiny_remove(&t);
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_group_of_two_cards),
					    cmocka_unit_test(a_job_on_a_bad_card_ends),
					    cmocka_unit_test(every_backend_trains_like_the_cpu) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
