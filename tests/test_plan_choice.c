/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_choice.c - what `best` chooses by itself beside groups and layers, each on a cluster
 * where one choice is clearly the right one: the way of adding up, offloading, who stores which
 * part of the training state, how much each member computes; and the sentences that say why. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/explain.h"
#include "plan/offload.h"
#include "plan/search.h"
#include "support/clusters.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A model of so many layers, each with 1 GiB of values and `state` GiB of what is trained. */
static void begin(struct buf *b, int layers, double state, int batch)
{
	buf_addf(b,
		 "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": %d, \"hidden\": 64, "
		 "\"parameters\": %g, \"parameters_per_layer\": 2.5e8, \"layer_gib\": 1, "
		 "\"layer_state_gib\": %g, \"embedding_gib\": 0, \"head_gib\": 0, "
		 "\"embedding_state_gib\": 0, \"head_state_gib\": 0}, \"sequence_len\": 64, "
		 "\"dtype\": \"float32\", \"global_batch\": %d, \"devices\": [",
		 layers, 2.5e8 * layers, state, batch);
}

static void device(struct buf *b, const char *id, const char *host, double memory, double ms,
		   const char *more)
{
	buf_addf(b,
		 "%s{\"id\": \"%s\", \"kind\": \"k\", \"host\": \"%s\", \"memory_gib\": %g, "
		 "\"reserve_gib\": 0, \"forward_ms\": {\"linear\": [%g, 0]}, \"backward_ms\": "
		 "{\"linear\": [%g, 0]}, \"head_forward_ms\": {\"linear\": [0, 0]}, "
		 "\"head_backward_ms\": {\"linear\": [0, 0]}, \"kept_gib\": {\"linear\": [0.01, "
		 "0]}%s}",
		 b->p[b->n - 1] == '[' ? "" : ", ", id, host, memory, ms, 2 * ms, more);
}

static void end(struct buf *b, const char *links, struct profile *p)
{
	struct err e = { 0 };
	buf_addf(b, "], \"links\": [%s]}", links);
	if (profile_read_text(p, b->p, b->n, "a test", &e) < 0)
		fail_msg("%s", e.msg);
	buf_release(b);
}

static struct plan_options options(void)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	o.groups = true;
	o.microbatch = 1;
	o.order = SUM_FAST;
	return o;
}

static void best(const struct profile *p, const struct plan_options *o, struct plan *plan)
{
	struct err e = { 0 };
	if (planner_run(&planner_best, p, o, plan, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(plan->fits && plan->executable);
}

/* Two machines of two devices: with `direct` four pairs share the cable, around a ring one. The
 * model has a single layer, so that there is no pipeline. */
static void the_way_of_adding_up(void **state)
{
	struct buf b = BUF_INIT, json = BUF_INIT;
	struct plan_options o = options(), given = o;
	struct profile p;
	struct plan plan, read, again;
	struct err e = { 0 };
	(void)state;
	begin(&b, 1, 0.3, 8);
	device(&b, "a", "x", 20, 400, "");
	device(&b, "b", "x", 20, 400, "");
	device(&b, "c", "y", 20, 400, "");
	device(&b, "d", "y", 20, 400, "");
	end(&b, "{\"hosts\": [\"x\", \"y\"], \"bandwidth_gbytes_per_s\": 0.3}", &p);
	best(&p, &o, &plan);
	assert_true(plan.stages == 1 && plan.stage[0].members == 4);
	assert_ptr_equal(plan.reducer, &reducer_ring);
	plan_to_json(&p, &plan, &json);
	assert_true(buf_ok(&json, &e) >= 0 && strstr(json.p, "\"reduce\": \"ring\""));
	const double ms = plan.simulated_ms;
	/* the file that is given back keeps it, unless the job has a way of its own */
	assert_int_equal(plan_read_text(&p, &o, json.p, json.n, "plan", &read, &e), 0);
	given.manual = &read;
	assert_int_equal(planner_run(&planner_manual, &p, &given, &again, &e), 0);
	assert_ptr_equal(again.reducer, &reducer_ring);
	assert_true(fabs(again.simulated_ms - ms) < 1e-9 * ms);
	plan_release(&again);
	given.reducer = &reducer_tree;
	assert_int_equal(planner_run(&planner_manual, &p, &given, &again, &e), 0);
	assert_null(again.reducer);
	plan_release(&again);
	plan_release(&read);
	plan.reducer = NULL;
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	print_message("around a ring %.0f ms, directly %.0f ms\n", ms, plan.simulated_ms);
	assert_true(ms < 0.99 * plan.simulated_ms);
	plan_release(&plan);
	/* far apart, with little to add up: few messages one after the other */
	begin(&b, 1, 0.003, 16);
	for (int i = 0; i < 8; i++) {
		char name[2] = { (char)('a' + i), 0 };
		device(&b, name, name, 20, 100, "");
	}
	profile_release(&p);
	end(&b, "{\"hosts\": [\"*\", \"*\"], \"bandwidth_gbytes_per_s\": 1, \"latency_ms\": 10}",
	    &p);
	best(&p, &o, &plan);
	assert_ptr_equal(plan.reducer, &reducer_direct);
	plan_release(&plan);
	profile_release(&p);
	buf_release(&json);
}

/* Six machines far apart. Around a ring, which so many members use where nothing is chosen, ten
 * messages follow each other, and four of them that add up directly are faster than all six; when
 * the way is chosen together with the groups, all six that add up directly are faster still. */
static void the_way_beside_the_groups(void **state)
{
	struct buf b = BUF_INIT;
	struct plan_options o = options();
	struct profile p;
	struct plan plan, fixed;
	static const char *const way[] = { "direct", "ring", "tree" };
	(void)state;
	begin(&b, 6, 0.003, 12);
	for (int i = 0; i < 6; i++) {
		char name[2] = { (char)('a' + i), 0 };
		device(&b, name, name, 20, 10, "");
	}
	end(&b, "{\"hosts\": [\"*\", \"*\"], \"bandwidth_gbytes_per_s\": 10, \"latency_ms\": 40}",
	    &p);
	best(&p, &o, &plan);
	assert_int_equal(plan.stages, 1);
	assert_int_equal(plan.stage[0].members, 6);
	assert_ptr_equal(plan.reducer, &reducer_direct);
	for (size_t i = 0; i < ARRAY_LEN(way); i++) {
		o.reducer = reducer_find(way[i]);
		best(&p, &o, &fixed);
		print_message("%s: %.0f ms, %d members\n", way[i], fixed.simulated_ms,
			      fixed.stage[0].members);
		assert_true(plan.simulated_ms <= fixed.simulated_ms * 1.01);
		plan_release(&fixed);
	}
	plan_release(&plan);
	profile_release(&p);
}

/* Two equal cards in one machine, one behind a slow link, and one without room. Each alone runs a
 * single pass of all rows; a second card is worth something only with two passes in its place. */
static void smaller_microbatches_for_a_group(void **state)
{
	static const char card[] =
		"{\"id\": \"%s\", \"kind\": \"k\", \"host\": \"%s\", \"memory_gib\": 16, "
		"\"forward_ms\": {\"linear\": [0.016019344983012766, 0.2]}, \"backward_ms\": "
		"{\"linear\": [0.018467629791069504, 0.2]}, \"upload_ms\": {\"linear\": "
		"[0.0131072, 0.01]}, \"download_ms\": {\"linear\": [0.0131072, 0.01]}, "
		"\"copy_ms\": {\"linear\": [0.008192, 0]}}, ";
	struct buf b = BUF_INIT;
	struct plan_options o = options();
	struct profile p;
	struct plan plan;
	(void)state;
	buf_adds(&b, "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 8, \"hidden\": 64, "
		     "\"parameters\": 16777216, \"parameters_per_layer\": 49152, \"layer_gib\": "
		     "2.56e-5, \"layer_state_gib\": 0.00064, \"embedding_state_gib\": 0, "
		     "\"head_state_gib\": 0}, \"sequence_len\": 512, \"dtype\": \"float16\", "
		     "\"global_batch\": 64, \"devices\": [");
	buf_addf(&b, card, "far", "y");
	buf_addf(&b, card, "c", "x");
	buf_addf(&b, card, "d", "x");
	buf_adds(&b, "{\"id\": \"small\", \"kind\": \"s\", \"host\": \"x\", \"memory_gib\": 0.12, "
		     "\"fixed_gib\": 0.1, \"reserve_gib\": 0.1, \"forward_ms\": {\"linear\": "
		     "[0.00066, 0.02]}, \"backward_ms\": {\"linear\": [0.00084, 0.02]}}");
	end(&b,
	    "{\"hosts\": [\"x\", \"x\"], \"bandwidth_gbytes_per_s\": 2, \"latency_ms\": 0.02}, "
	    "{\"hosts\": [\"*\", \"*\"], \"bandwidth_gbytes_per_s\": 0.0117, \"latency_ms\": 5}",
	    &p);
	o.microbatch = 0;
	o.share_auto = true;
	best(&p, &o, &plan);
	print_message("%.2f ms\n", plan.simulated_ms);
	assert_true(plan.simulated_ms < 270 && plan_uses(&plan, 1) && plan_uses(&plan, 2));
	plan_release(&plan);
	profile_release(&p);
}

/* A fast card that holds half of the model beside a slow one: with the optimizer's state in the
 * memory of its machine it holds all of it, and needs nobody. */
static void offloading(void **state)
{
	struct buf b = BUF_INIT;
	struct plan_options o = options();
	struct profile p;
	struct plan plan, other;
	(void)state;
	begin(&b, 4, 3, 8);
	device(&b, "fast", "x", 9, 10, ", \"host_memory_gib\": 64, \"host_update_s\": 0.01");
	device(&b, "slow", "y", 40, 60, ", \"host_memory_gib\": 64, \"host_update_s\": 0.01");
	end(&b, "{\"hosts\": [\"x\", \"y\"], \"bandwidth_gbytes_per_s\": 1}", &p);
	best(&p, &o, &other);
	assert_true(!other.offload && plan_uses(&other, 1));
	o.offload_auto = true;
	best(&p, &o, &plan);
	print_message("without offloading %.0f ms, with it %.0f ms\n", other.simulated_ms,
		      plan.simulated_ms);
	assert_int_equal(plan.offload, OFFLOAD_OPTIMIZER);
	assert_true(plan.stages == 1 && plan.stage[0].member[0].device == 0);
	assert_true(plan.simulated_ms < 0.5 * other.simulated_ms);
	/* where updates take long there, it is not worth it */
	p.device[0].host_update_s = 2;
	plan_release(&plan);
	best(&p, &o, &plan);
	assert_int_equal(plan.offload, 0);
	plan_release(&plan);
	plan_release(&other);
	profile_release(&p);
}

/* By memory the old machine would store and update nearly all of the state, slowly. */
static void who_stores_the_state(void **state)
{
	struct buf b = BUF_INIT;
	struct plan_options o = options();
	struct profile p;
	struct plan plan, given;
	struct err e = { 0 };
	(void)state;
	begin(&b, 1, 6, 8);
	device(&b, "new", "x", 8, 400, ", \"optimizer_ms\": 20");
	device(&b, "old", "x", 40, 800, ", \"optimizer_ms\": 2000");
	end(&b, "", &p);
	o.share_auto = true;
	best(&p, &o, &plan);
	assert_true(plan.stages == 1 && plan.stage[0].members == 2);
	const struct plan_member *m = plan.stage[0].member;
	print_message("new stores %.0f %% of the state, by memory 17 %%: %.0f ms\n",
		      100 * m[0].state_share, plan.simulated_ms);
	assert_true(m[0].device == 0 && plan_shares_state(&plan.stage[0]));
	assert_true(m[0].state_share > 0.5 && m[0].memory_gib <= m[0].limit_gib);
	const double ms = plan.simulated_ms;
	plan_share_state(&p, &o, &plan.stage[0]);
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	assert_true(plan.stage[0].member[0].state_share < 0.2 && ms < 0.9 * plan.simulated_ms);
	plan_release(&plan);
	/* by memory neither fits; each stores what it has room for */
	static const char text[] =
		"{\"version\": 1, \"microbatch\": 1, \"stages\": [{\"layers\": [0, 1], "
		"\"devices\": "
		"[{\"id\": \"new\", \"share\": 1, \"state_share\": 0.9}, {\"id\": \"old\", "
		"\"share\": 1, \"state_share\": 0.1}]}]}";
	assert_int_equal(plan_read_text(&p, &o, text, strlen(text), "plan", &given, &e), 0);
	p.device[0].memory_gib = 4;
	assert_int_equal(plan_simulate(&p, &o, &given, &e), 0);
	assert_false(given.fits);
	assert_int_equal(search_room(&p, &o, &given, &e), 0);
	assert_true(given.fits);
	assert_true(fabs(given.stage[0].member[0].state_share +
			 given.stage[0].member[1].state_share - 1) < 1e-9);
	/* and where there is no room nothing changes */
	p.device[0].memory_gib = p.device[1].memory_gib = 4;
	const double before = given.stage[0].member[0].state_share;
	assert_int_equal(plan_simulate(&p, &o, &given, &e), 0);
	assert_int_equal(search_room(&p, &o, &given, &e), 0);
	assert_true(!given.fits && given.stage[0].member[0].state_share == before);
	plan_release(&given);
	profile_release(&p);
}

/* Plans with groups that cannot be improved by a microbatch or a part of the state from one member
 * to another; none becomes slower by trying. */
static void how_much_each_computes(void **state)
{
	int groups = 0, better = 0;
	double most = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct plan_options o = options();
		struct profile p;
		struct plan plan = { .mem = ARENA_INIT, .over_device = -1 };
		struct err e = { 0 };
		o.sched = sched_default();
		assert_int_equal(cluster_make_sized(7000 + seed, 4, 6, 2, 12, &p), 0);
		o.share_auto = true;
		int rc = search_groups(&p, &o, NULL, 300000, &plan, &e);
		if (rc == 1) {
			assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
			const double ms = plan.simulated_ms;
			assert_int_equal(search_polish(&p, &o, 1000000, &plan, &e), 0);
			assert_int_equal(plan_check(&p, &plan, &e), 0);
			assert_true(plan.fits && plan.executable && plan.simulated_ms <= ms);
			most = fmax(most, ms / plan.simulated_ms - 1);
			better += plan.simulated_ms < ms;
			groups++;
		}
		plan_release(&plan);
		err_clear(&e);
		profile_release(&p);
	}
	print_message("%d plans, %d of them faster with other shares, by up to %.1f %%\n", groups,
		      better, 100 * most);
	assert_true(groups > 20 && better > 0);
}

/* The stepwise search, as larger clusters have it, beside all groupings. */
static void step_by_step(void **state)
{
	int solved = 0, same = 0;
	double worst = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct plan_options o = options();
		struct profile p;
		struct plan plan = { .mem = ARENA_INIT, .over_device = -1 },
			    all = { .mem = ARENA_INIT, .over_device = -1 },
			    known = { .mem = ARENA_INIT };
		struct plan_options alone;
		bool any = false;
		struct err e = { 0 };
		o.sched = sched_default();
		assert_int_equal(cluster_make_sized(8000 + seed, 5, 8, 3, 8, &p), 0);
		alone = o;
		int rc = search_groups_all(&p, &o, &all, &e);
		if (rc == 1) {
			assert_int_equal(plan_simulate(&p, &o, &all, &e), 0);
			alone.groups = false;
			any = planner_run(&planner_best, &p, &alone, &known, &e) >= 0 && known.fits;
			err_clear(&e);
			if (search_groups(&p, &o, any ? &known : NULL, 5000000, &plan, &e) != 1)
				fail_msg("cluster %llu: nothing fits step by step (%d)",
					 (unsigned long long)seed, any);
			assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
			const double d = plan.simulated_ms / all.simulated_ms - 1;
			if (d > 1e-3)
				print_message("cluster %llu: %.2f %% slower\n",
					      (unsigned long long)seed, 100 * d);
			worst = fmax(worst, d);
			same += d < 1e-9;
			solved++;
		}
		assert_true(rc != SEARCH_TOO_MANY);
		plan_release(&plan);
		plan_release(&all);
		plan_release(&known);
		err_clear(&e);
		profile_release(&p);
	}
	print_message("%d clusters step by step: the best in %d, at most %.2f %% slower\n", solved,
		      same, 100 * worst);
	assert_true(solved > 4 && worst < 0.01);
}

/* Why there is a group, and why somebody is left out. */
static void sentences(void **state)
{
	struct buf b = BUF_INIT, text = BUF_INIT;
	struct plan_options o = options();
	struct profile p;
	struct plan plan;
	struct plan_whatif w[3];
	struct plan_rival r;
	struct err e = { 0 };
	(void)state;
	begin(&b, 4, 0.01, 8);
	device(&b, "gpu1", "x", 20, 10, "");
	device(&b, "gpu2", "x", 20, 10, "");
	device(&b, "box4", "y", 20, 300, "");
	end(&b, "{\"hosts\": [\"x\", \"y\"], \"bandwidth_gbytes_per_s\": 0.01, \"latency_ms\": 5}",
	    &p);
	best(&p, &o, &plan);
	assert_int_equal(plan_whatifs(&p, &o, &plan, w, &e), 0);
	assert_int_equal(plan_second_best(&p, &o, &plan, &r, &e), 0);
	plan_explain(&p, &o, &plan, w, &r, &text);
	assert_true(buf_ok(&text, &e) >= 0);
	print_message("%s", text.p);
	assert_non_null(strstr(text.p, "gpu1 and gpu2 form a group, because a pipeline of 2 would "
				       "wait "));
	assert_non_null(strstr(text.p, " % of its step: "));
	assert_non_null(strstr(text.p, "box4 is left out: with it "));
	assert_non_null(strstr(text.p, " ms a step, without it "));
	buf_release(&text);
	plan_release(&plan);
	profile_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_way_of_adding_up),
					    cmocka_unit_test(the_way_beside_the_groups),
					    cmocka_unit_test(smaller_microbatches_for_a_group),
					    cmocka_unit_test(offloading),
					    cmocka_unit_test(who_stores_the_state),
					    cmocka_unit_test(how_much_each_computes),
					    cmocka_unit_test(step_by_step),
					    cmocka_unit_test(sentences) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
