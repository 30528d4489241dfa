/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_published.c - the planners after Cephalo and Zorse give exactly the answers their
 * authors' code gives; and where one has none for a cluster, it says why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "plan/plan.h"

static void run(const char *planner, const char *name, struct profile *p, struct plan *plan,
		json_t **want)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	char path[200];

	snprintf(path, sizeof path, "tests/golden/plan/%s.profile.json", name);
	if (profile_read_file(p, path, &e) < 0 ||
	    planner_run(planner_find(planner), p, &o, plan, &e) < 0)
		fail_msg("%s", e.msg);
	snprintf(path, sizeof path, "tests/golden/plan/%s.expected.json", name);
	*want = json_load_file(path, 0, NULL);
	assert_non_null(*want);
}

static long want_int(const json_t *doc, const char *key, size_t i)
{
	return (long)json_integer_value(json_array_get(json_object_get(doc, key), i));
}

static void test_cephalo(void **state)
{
	struct profile p;
	struct plan plan;
	json_t *want;

	(void)state;
	run("cephalo", "cephalo-gpt2.7b-fp16-4gpu", &p, &plan, &want);
	assert_int_equal(plan.stages, 1);
	assert_int_equal(plan.stage[0].members, json_array_size(json_object_get(want, "samples")));
	for (int i = 0; i < plan.stage[0].members; i++) {
		const struct plan_member *m = &plan.stage[0].member[i];
		double share = json_number_value(
			json_array_get(json_object_get(want, "state_share"), (size_t)i));
		assert_int_equal(m->device, i);
		assert_int_equal(m->samples, want_int(want, "samples", (size_t)i));
		assert_int_equal(m->microbatches, want_int(want, "microbatches", (size_t)i));
		assert_true(fabs(m->state_share - share) <= 1e-9);
	}
	assert_true(fabs(plan.objective_ms - 342.30) <= 0.005);
	assert_true(plan.executable && plan.sched->gathers && plan.chunks == p.layers);
	assert_int_equal(plan.microbatches, 5);
	for (int i = 0, rows = 0; i < 5; i++) {
		rows += plan.pass[i];
		assert_true(i < 4 || rows == p.global_batch);
	}
	print_message(
		"cephalo: objective %.4f ms, %.0f ms a step, simulated %.0f ms, search %.1f ms\n",
		plan.objective_ms, plan.predicted_ms, plan.simulated_ms, plan.search_ms);
	json_decref(want);
	plan_release(&plan);
	profile_release(&p);
}

static void test_zorse(void **state)
{
	struct profile p;
	struct plan plan;
	json_t *want;

	(void)state;
	run("zorse", "zorse-llama1.3b-fp16-4gpu", &p, &plan, &want);
	assert_int_equal(plan.stages, 1);
	assert_true(plan.executable && plan.sched->gathers && plan.stage[0].sharded);
	assert_int_equal(plan.first[0], want_int(want, "layers", 0));
	assert_int_equal(plan.first[plan.chunks], want_int(want, "layers", 1));
	assert_int_equal(plan.microbatch, json_integer_value(json_object_get(want, "microbatch")));
	for (int i = 0; i < plan.stage[0].members; i++)
		assert_int_equal(plan.stage[0].member[i].microbatches,
				 want_int(want, "microbatches", (size_t)i));
	assert_true(fabs(plan.predicted_ms -
			 json_number_value(json_object_get(want, "predicted_ms"))) <= 0.0005);
	print_message("zorse: %.6f ms, simulated %.0f ms, search %.1f ms\n", plan.predicted_ms,
		      plan.simulated_ms, plan.search_ms);
	json_decref(want);
	plan_release(&plan);
	profile_release(&p);
}

/* The planner has no answer for the profile; it says `why` in a line. */
static void refuses(const char *planner, const struct profile *p, const char *why)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct plan plan = { .mem = ARENA_INIT, .over_device = -1 };
	struct err e = { 0 };
	assert_int_equal(planner_run(planner_find(planner), p, &o, &plan, &e), ERR_USAGE);
	if (!strstr(e.msg, why) || strchr(e.msg, '\n'))
		fail_msg("%s: %s", planner, e.msg);
}

/* A device without room for any state stores none of it; the others store all of it. */
static void test_cephalo_little_memory(void **state)
{
	struct profile p;
	struct plan plan;
	json_t *want;
	double sum = 0;

	(void)state;
	run("cephalo", "cephalo-gpt2.7b-fp16-4gpu", &p, &plan, &want);
	json_decref(want);
	plan_release(&plan);
	p.device[2].memory_gib = 5;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	if (planner_run(planner_find("cephalo"), &p, &o, &plan, &e) < 0)
		fail_msg("%s", e.msg);
	for (int i = 0; i < plan.stage[0].members; i++)
		sum += plan.stage[0].member[i].state_share;
	assert_true(plan.stage[0].member[2].state_share == 0);
	assert_true(fabs(sum - 1) <= 1e-9);
	plan_release(&plan);
	profile_release(&p);
}

static void test_refusals(void **state)
{
	struct profile p;
	struct plan plan;
	json_t *want;
	(void)state;
	run("zorse", "zorse-llama1.3b-fp16-4gpu", &p, &plan, &want);
	json_decref(want);
	plan_release(&plan);
	/* beside the reserve of 2 GiB no group has room for anything */
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = 2.1;
	refuses("zorse", &p,
		"zorse: no partition into groups fits into memory (2 + 12 bytes a parameter, 2 GiB "
		"reserve); use 'best'");
	profile_release(&p);
	run("cephalo", "cephalo-gpt2.7b-fp16-4gpu", &p, &plan, &want);
	json_decref(want);
	plan_release(&plan);
	p.global_batch = p.devices - 1;
	refuses("cephalo", &p,
		"cephalo: every device computes at least one sequence: 4 devices, global batch 3; "
		"take a larger batch or use 'best'");
	profile_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cephalo),
					    cmocka_unit_test(test_cephalo_little_memory),
					    cmocka_unit_test(test_zorse),
					    cmocka_unit_test(test_refusals) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
