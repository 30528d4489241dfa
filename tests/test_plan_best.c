/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_best.c - properties of the planners on random clusters: `best` equals `exhaustive`
 * where that can be computed, is never slower than any other row, and never above a memory
 * limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "plan/search.h"
#include "support/clusters.h"

/* A sanitizer build takes several times as long: fewer clusters. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SMALL = 60, LARGE = 150, GROUPED = 20 };
#else
enum { SMALL = 500, LARGE = 2000, GROUPED = 200 };
#endif

static struct plan_options opts(void)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	return o;
}

static void check_memory(const struct plan *plan, uint64_t seed)
{
	for (int k = 0; k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			if (!(plan->stage[k].member[i].memory_gib <=
			      plan->stage[k].member[i].limit_gib))
				fail_msg("cluster %llu: %s uses %g of %g GiB",
					 (unsigned long long)seed, plan->planner,
					 plan->stage[k].member[i].memory_gib,
					 plan->stage[k].member[i].limit_gib);
	assert_true(plan->fits);
}

/* How far the heuristics alone are from the best: not a requirement, but worth seeing. */
static double heuristic_ms(const struct profile *p)
{
	struct plan_options o = opts();
	struct search s;
	struct err e = { 0 };
	double t;

	assert_int_equal(search_init(&s, p, &o, &e), 0);
	assert_int_equal(search_heuristic(&s, 1000000, &e), 0);
	t = s.best.step_s * 1e3;
	search_release(&s);
	return t;
}

static void test_equals_exhaustive(void **state)
{
	int solved = 0, none = 0, exact = 0;
	double largest = 0, gap = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SMALL; seed++) {
		struct plan_options o = opts();
		struct profile p;
		struct plan best, all;
		struct err e = { 0 }, e2 = { 0 };
		int a, b;

		assert_int_equal(cluster_make(seed, 5, 12, &p), 0);
		a = planner_run(&planner_best, &p, &o, &best, &e);
		b = planner_run(&planner_exhaustive, &p, &o, &all, &e2);
		if (a != b)
			fail_msg("cluster %llu: best %d (%s), exhaustive %d (%s)",
				 (unsigned long long)seed, a, e.msg, b, e2.msg);
		if (a < 0) {
			assert_int_equal(a, ERR_USAGE);
			assert_non_null(strstr(e.msg, "GiB more"));
			none++;
		} else {
			double d = fabs(best.simulated_ms - all.simulated_ms) / all.simulated_ms,
			       h = heuristic_ms(&p) / all.simulated_ms - 1;
			if (!(d <= largest))
				largest = d;
			if (!(d <= 1e-9))
				fail_msg("cluster %llu: best %.9g ms, exhaustive %.9g ms",
					 (unsigned long long)seed, best.simulated_ms,
					 all.simulated_ms);
			assert_true(best.proven);
			check_memory(&best, seed);
			exact += h <= 1e-9;
			gap = h > gap ? h : gap;
			solved++;
			plan_release(&best);
			plan_release(&all);
		}
		profile_release(&p);
	}
	print_message(
		"%d clusters solved, %d where nothing fits; largest relative difference %.3g\n",
		solved, none, largest);
	print_message("heuristics alone: the best in %d, at most %.2f %% slower\n", exact,
		      gap * 100);
	assert_true(solved > SMALL / 2 && none > 0);
}

/* With groups: `best` against all groupings of small clusters. */
static void test_groups_are_near_the_best(void **state)
{
	int solved = 0, grouped = 0, same = 0;
	double worst = 0, gain = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= GROUPED; seed++) {
		struct plan_options o = opts(), alone;
		struct profile p;
		struct plan best, all, pipeline;
		struct err e = { 0 }, e2 = { 0 };

		assert_int_equal(cluster_make(500 + seed, 4, 8, &p), 0);
		o.share_auto = seed % 2;
		o.order = seed % 3 ? SUM_FAST : SUM_EXACT;
		alone = o;
		o.groups = true;
		int a = planner_run(&planner_best, &p, &o, &best, &e),
		    b = planner_run(&planner_exhaustive, &p, &o, &all, &e2);
		if (a != b)
			fail_msg("cluster %llu: best %d (%s), exhaustive %d (%s)",
				 (unsigned long long)seed, a, e.msg, b, e2.msg);
		if (a >= 0) {
			const double d = best.simulated_ms / all.simulated_ms - 1;
			worst = d > worst ? d : worst;
			same += d < 1e-9;
			if (d > 0.01)
				fail_msg("cluster %llu: best %.9g ms, exhaustive %.9g ms",
					 (unsigned long long)seed, best.simulated_ms,
					 all.simulated_ms);
			assert_true(best.executable && best.fits && all.executable);
			check_memory(&best, seed);
			solved++;
			if (planner_run(&planner_best, &p, &alone, &pipeline, &e2) >= 0) {
				grouped += best.simulated_ms < pipeline.simulated_ms * 0.99;
				gain = fmax(gain, pipeline.simulated_ms / best.simulated_ms - 1);
				plan_release(&pipeline);
			}
			plan_release(&best);
			plan_release(&all);
		}
		profile_release(&p);
	}
	print_message("%d clusters with groups: the best in %d, at most %.2f %% slower; groups are "
		      "faster than a pipeline in %d, by up to %.0f %%\n",
		      solved, same, 100 * worst, grouped, 100 * gain);
	assert_true(solved > GROUPED / 2 && grouped > 0);
}

/* The rows of a microbatch that a job gives are part of its results: no plan changes them. */
static void test_rows_are_kept(void **state)
{
	int solved = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct plan_options o = opts();
		struct profile p;
		struct plan plan;
		struct err e = { 0 };

		assert_int_equal(cluster_make(900 + seed, 5, 8, &p), 0);
		o.share_auto = o.groups = true;
		o.microbatch = 1;
		if (planner_run(&planner_best, &p, &o, &plan, &e) >= 0) {
			assert_true(plan.microbatch == 1 && !plan.pass);
			for (int k = 0; k < plan.stages; k++)
				for (int i = 0; i < plan.stage[k].members; i++)
					assert_int_equal(plan.stage[k].member[i].microbatch, 1);
			solved++;
			plan_release(&plan);
		}
		profile_release(&p);
	}
	assert_true(solved > 20);
}

/* What is chosen behind the search: no other way of adding up is more than 1 % faster; offloading,
 * where a plan fits without, only for at least 5 %. */
static void test_reducers_and_offload(void **state)
{
	static const char *const way[] = { "direct", "ring", "tree" };
	int groups = 0, chosen = 0, offloaded = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct plan_options o = opts();
		struct profile p;
		struct plan plan, free;
		struct err e = { 0 };

		assert_int_equal(cluster_make(1200 + seed, 5, 8, &p), 0);
		o.share_auto = o.groups = true;
		o.order = SUM_FAST;
		o.effort = 1000000;
		if (planner_run(&planner_best, &p, &o, &plan, &e) >= 0) {
			const double ms = plan.simulated_ms;
			bool any = false;
			for (int k = 0; k < plan.stages; k++)
				any = any || plan.stage[k].members > 1;
			groups += any;
			chosen += plan.reducer != NULL;
			o.offload_auto = true;
			assert_int_equal(planner_run(&planner_best, &p, &o, &free, &e), 0);
			assert_true(free.fits && free.executable);
			if (free.offload && !(free.simulated_ms < 0.95 * ms))
				fail_msg("cluster %llu: %g ms offloaded, %g without",
					 (unsigned long long)seed, free.simulated_ms, ms);
			offloaded += free.offload != 0;
			plan_release(&free);
			for (size_t i = 0; any && i < ARRAY_LEN(way); i++) {
				plan.reducer = reducer_find(way[i]);
				assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
				if (!(plan.simulated_ms >= 0.989 * ms))
					fail_msg("cluster %llu: %s takes %g ms, the plan %g",
						 (unsigned long long)seed, way[i],
						 plan.simulated_ms, ms);
			}
			plan_release(&plan);
		}
		profile_release(&p);
	}
	print_message("%d plans with groups, of which %d add up otherwise than usual; %d offload\n",
		      groups, chosen, offloaded);
	assert_true(groups > 5);
}

/* Of a step with a reference every layer's forward pass counts twice, and the head's. */
static void test_forward_passes(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct plan_options o = opts();
		struct profile p;
		struct plan one, two;
		struct err e = { 0 };
		assert_int_equal(cluster_make(seed, 1, 12, &p), 0);
		if (planner_run(&planner_best, &p, &o, &one, &e) < 0) {
			profile_release(&p);
			continue;
		}
		o.forwards = o.head_forwards = 2;
		assert_int_equal(planner_run(&planner_best, &p, &o, &two, &e), 0);
		assert_true(two.simulated_ms > one.simulated_ms &&
			    two.simulated_ms < 2 * one.simulated_ms);
		plan_release(&one);
		plan_release(&two);
		profile_release(&p);
	}
}

/* Where a slow link is all that limits, the activations of the reference's passes count too: they
 * go the way of the others, and no gradients come back. */
static void test_forward_messages(void **state)
{
	static const char text[] =
		"{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 8, \"hidden\": 512, "
		"\"parameters\": 4e9, \"parameters_per_layer\": 5e8}, \"sequence_len\": 512, "
		"\"dtype\": \"bfloat16\", \"global_batch\": 16, \"devices\": ["
		"{\"id\": \"a\", \"kind\": \"k\", \"host\": \"h\", \"memory_gib\": 40, "
		"\"forward_ms\": {\"linear\": [0.01, 0.01]}, "
		"\"backward_ms\": {\"linear\": [0.02, 0.02]}}, "
		"{\"id\": \"b\", \"kind\": \"k\", \"host\": \"i\", \"memory_gib\": 40, "
		"\"forward_ms\": {\"linear\": [0.01, 0.01]}, "
		"\"backward_ms\": {\"linear\": [0.02, 0.02]}}], "
		"\"links\": [{\"hosts\": [\"h\", \"i\"], "
		"\"bandwidth_gbytes_per_s\": 0.01}]}";
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct profile p;
	struct plan one, two;
	struct err e = { 0 };
	(void)state;
	o.microbatch = 1;
	o.sched = sched_find("gpipe");
	if (profile_read_text(&p, text, strlen(text), "a test", &e) < 0)
		fail_msg("%s", e.msg);
	if (planner_run(&planner_best, &p, &o, &one, &e) < 0)
		fail_msg("%s", e.msg);
	o.forwards = o.head_forwards = 2;
	assert_int_equal(planner_run(&planner_best, &p, &o, &two, &e), 0);
	assert_int_equal(one.stages, 2);
	print_message("one pass %.0f ms, with a reference %.0f ms\n", one.simulated_ms,
		      two.simulated_ms);
	assert_true(two.simulated_ms > 1.4 * one.simulated_ms &&
		    two.simulated_ms < 1.6 * one.simulated_ms);
	plan_release(&one);
	plan_release(&two);
	profile_release(&p);
}

/* A pipeline has no more stages than the model has layers: only groups use more devices. */
static void test_many_devices_form_groups(void **state)
{
	enum { MANY = SEARCH_GROUPED + 8 };
	struct buf b = BUF_INIT;
	struct plan_options o = opts();
	struct profile p;
	struct plan pipeline, plan;
	struct err e = { 0 };
	int used = 0;
	(void)state;
	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 4, \"hidden\": 512, "
		 "\"parameters\": 4e8, \"parameters_per_layer\": 1e8}, \"sequence_len\": 512, "
		 "\"dtype\": \"bfloat16\", \"global_batch\": %d, \"links\": [{\"hosts\": [\"*\", "
		 "\"*\"], \"bandwidth_gbytes_per_s\": 10}], \"devices\": [",
		 2 * MANY);
	for (int i = 0; i < MANY; i++)
		buf_addf(&b,
			 "%s{\"id\": \"d%d\", \"kind\": \"k\", \"host\": \"h%d\", \"memory_gib\": "
			 "40, "
			 "\"forward_ms\": {\"linear\": [1, 10]}, "
			 "\"backward_ms\": {\"linear\": [2, 20]}}",
			 i ? ", " : "", i, i);
	buf_adds(&b, "]}");
	o.groups = true;
	o.microbatch = 1;
	if (profile_read_text(&p, b.p, b.n, "a test", &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), 0);
	o.groups = false;
	assert_int_equal(planner_run(&planner_best, &p, &o, &pipeline, &e), 0);
	for (int k = 0; k < plan.stages; k++)
		used += plan.stage[k].members;
	print_message("%d devices: %d of them in %d stages, %.0f ms; as a pipeline %.0f ms\n", MANY,
		      used, plan.stages, plan.simulated_ms, pipeline.simulated_ms);
	check_memory(&plan, 0);
	assert_true(used > MANY / 2 && 4 * plan.simulated_ms < pipeline.simulated_ms);
	plan_release(&plan);
	plan_release(&pipeline);
	profile_release(&p);
	buf_release(&b);
}

/* On one device all schedules take the same time: the one that keeps least is taken, whatever the
 * sums round to. */
static void test_one_device_keeps_least(void **state)
{
	static const char text[] =
		"{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 30, \"hidden\": 576, "
		"\"parameters\": 135e6, "
		"\"parameters_per_layer\": 3.5e6}, \"sequence_len\": 209, \"dtype\": \"bfloat16\", "
		"\"global_batch\": %d, "
		"\"devices\": ["
		"{\"id\": \"a\", \"kind\": \"k\", \"host\": \"h\", \"memory_gib\": 24, "
		"\"forward_ms\": {\"linear\": [4.%d3, 0.1]}, "
		"\"backward_ms\": {\"linear\": [7.%d7, 0.3]}}], \"links\": []}";
	(void)state;
	for (int i = 0; i < 40; i++) {
		struct plan_options o = PLAN_OPTIONS_DEFAULT;
		struct profile p;
		struct plan plan;
		struct err e = { 0 };
		char doc[1000];
		o.microbatch = 1;
		snprintf(doc, sizeof doc, text, 4 + i % 5, i, 40 - i);
		assert_int_equal(profile_read_text(&p, doc, strlen(doc), "a test", &e), 0);
		assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), 0);
		assert_int_equal(sched_in_flight_alone(plan.sched, 1, 1, plan.microbatches, 0), 1);
		plan_release(&plan);
		profile_release(&p);
	}
}

static void test_never_worse(void **state)
{
	int plans = 0, groups = 0, faster[16] = { 0 }, of[16] = { 0 };

	(void)state;
	for (uint64_t seed = 1; seed <= LARGE; seed++) {
		struct plan_options o = opts();
		struct profile p;
		struct plan best;
		struct err e = { 0 };
		int rc;

		/* few of the largest, so that the test ends in time */
		assert_int_equal(cluster_make(10000 + seed,
					      seed % 20 == 0  ? 16
					      : seed % 5 == 0 ? 10
							      : 6,
					      seed % 20 == 0 ? 24 : 12, &p),
				 0);
		o.effort = 400000;
		o.groups = seed % 4 == 0; /* otherwise only what can be executed counts */
		rc = planner_run(&planner_best, &p, &o, &best, &e);
		if (rc == 0)
			check_memory(&best, seed);
		for (size_t i = 0; planner_at(i); i++) {
			const struct planner *row = planner_at(i);
			struct plan other;
			struct err e2 = { 0 };

			if (row == &planner_best || row == &planner_manual ||
			    row == &planner_exhaustive ||
			    (!o.groups && (row == &planner_cephalo || row == &planner_zorse)))
				continue;
			if (planner_run(row, &p, &o, &other, &e2) < 0) {
				assert_true(e2.code == ERR_USAGE);
				continue;
			}
			if (other.fits && other.executable) {
				if (rc < 0)
					fail_msg("cluster %llu: %s has a plan, best has none (%s)",
						 (unsigned long long)seed, row->name, e.msg);
				if (!(best.simulated_ms <= other.simulated_ms * (1 + 1e-9)))
					fail_msg("cluster %llu: best %.9g ms, %s %.9g ms",
						 (unsigned long long)seed, best.simulated_ms,
						 row->name, other.simulated_ms);
				faster[i] += best.simulated_ms < other.simulated_ms * (1 - 1e-9);
				of[i]++;
			}
			plan_release(&other);
		}
		if (rc == 0) {
			plans++;
			for (int k = 0; k < best.stages; k++)
				if (best.stage[k].members > 1) {
					groups++;
					break;
				}
			plan_release(&best);
		}
		profile_release(&p);
	}
	print_message("%d plans, %d of them with groups\n", plans, groups);
	for (size_t i = 0; planner_at(i); i++)
		if (of[i])
			print_message("faster than %s in %d of %d\n", planner_at(i)->name,
				      faster[i], of[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_equals_exhaustive),
					    cmocka_unit_test(test_groups_are_near_the_best),
					    cmocka_unit_test(test_rows_are_kept),
					    cmocka_unit_test(test_reducers_and_offload),
					    cmocka_unit_test(test_forward_passes),
					    cmocka_unit_test(test_forward_messages),
					    cmocka_unit_test(test_many_devices_form_groups),
					    cmocka_unit_test(test_one_device_keeps_least),
					    cmocka_unit_test(test_never_worse) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
