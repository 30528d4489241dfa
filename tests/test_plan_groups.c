/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_groups.c - predictions for stages that several devices share, against times and memory
 * known in closed form; and the comparison with what was measured, member by member. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/cost_parts.h"
#include "plan/fit.h"
#include "plan/offload.h"
#include "plan/sum_time.h"
#include "survey/judge.h"
#include "survey/reduction.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB 1073741824.0

static void close_to(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * (1e-3 + fabs(want))))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* Four layers, 1 + 2 ms forward and backward on a and b, half of it on c; nothing in front of the
 * layers and behind them. 10 MiB of gradients a layer. Messages of 8192 bytes. a and b are on one
 * host, c on another, 1 GB/s and 0.2 ms away. */
static void read_profile(struct profile *p)
{
	static const char text[] =
		"{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 4, \"hidden\": 64, "
		"\"parameters\": 400, "
		"\"parameters_per_layer\": 100, \"embedding_parameters\": 0, \"head_parameters\": "
		"0, \"layer_gib\": 0.25, \"layer_state_gib\": 0.029296875, \"embedding_gib\": 0, "
		"\"head_gib\": 0, \"embedding_state_gib\": 0, \"head_state_gib\": 0}, "
		"\"sequence_len\": 64, \"dtype\": \"float32\", \"global_batch\": 8, \"devices\": ["
		"{\"id\": \"a\", \"kind\": \"k\", \"host\": \"x\", \"memory_gib\": 100, "
		"\"forward_ms\": {\"linear\": [1, 0]}, \"backward_ms\": {\"linear\": [2, 0]}, "
		"\"kept_gib\": {\"linear\": [0.5, 0]}, \"activation_gib\": {\"linear\": [0.5, 0]}},"
		"{\"id\": \"b\", \"kind\": \"k\", \"host\": \"x\", \"memory_gib\": 100, "
		"\"forward_ms\": {\"linear\": [1, 0]}, \"backward_ms\": {\"linear\": [2, 0]}, "
		"\"kept_gib\": {\"linear\": [0.5, 0]}, \"activation_gib\": {\"linear\": [0.5, 0]}},"
		"{\"id\": \"c\", \"kind\": \"k\", \"host\": \"y\", \"memory_gib\": 100, "
		"\"forward_ms\": {\"linear\": [0.5, 0]}, \"backward_ms\": {\"linear\": [1, 0]}, "
		"\"kept_gib\": {\"linear\": [0.5, 0]}, \"activation_gib\": {\"linear\": [0.5, 0]}}"
		"], \"links\": [{\"hosts\": [\"x\", \"y\"], \"bandwidth_gbytes_per_s\": 1, "
		"\"latency_ms\": 0.2}, {\"hosts\": [\"x\", \"x\"], \"bandwidth_gbytes_per_s\": 4, "
		"\"latency_ms\": 0.1}]}";
	struct err e = { 0 };
	if (profile_read_text(p, text, sizeof text - 1, "profile", &e) < 0)
		fail_msg("%s", e.msg);
}

static void read_plan(const struct profile *p, const struct plan_options *o, const char *stages,
		      struct plan *plan)
{
	struct err e = { 0 };
	char text[2000];
	snprintf(text, sizeof text, "{\"version\": 1, \"microbatch\": 1, \"stages\": [%s]}",
		 stages);
	if (plan_read_text(p, o, text, strlen(text), "plan", plan, &e) < 0)
		fail_msg("%s", e.msg);
}

#define ONE "{\"layers\": [0, 4], \"devices\": [{\"id\": \"a\"}]}"
#define MEMBER(id, share) "{\"id\": \"" id "\", \"share\": " #share ", \"state_share\": 1}"
#define TWO "{\"layers\": [0, 4], \"devices\": [" MEMBER("a", 1) ", " MEMBER("b", 1) "]}"
#define PART(id, share, state)                                                                     \
	"{\"id\": \"" id "\", \"share\": " #share ", \"state_share\": " #state "}"
#define SHARED "{\"layers\": [0, 4], \"devices\": [" PART("a", 1, 0.75) ", " PART("b", 1, 0.25) "]}"
#define UNEQUAL "{\"layers\": [0, 4], \"devices\": [" MEMBER("a", 3) ", " MEMBER("b", 1) "]}"
#define TWO_AND_ONE                                                                                \
	"{\"layers\": [0, 2], \"devices\": [" MEMBER("a", 1) ", " MEMBER(                          \
		"b", 1) "]}, "                                                                     \
			"{\"layers\": [2, 4], \"devices\": [{\"id\": \"c\"}]}"

/* Half of the microbatches each, then the sum: 40 MiB of gradients, half of them to the other
 * member and half back. */
static void test_two(void **state)
{
	struct profile p;
	struct plan plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	const double half = 0.1 + 20.0 * 1048576 / 4e9 * 1e3;
	(void)state;
	read_profile(&p);
	o.reduce_parts = 1;
	read_plan(&p, &o, ONE, &plan);
	close_to(plan.simulated_ms, 8 * 12);
	plan_release(&plan);
	read_plan(&p, &o, TWO, &plan);
	assert_true(plan.executable);
	close_to(plan.simulated_ms, 4 * 12 + 2 * half);
	for (int i = 0; i < 2; i++) {
		const struct plan_member *m = &plan.stage[0].member[i];
		close_to(m->busy * plan.simulated_ms, 4 * 12);
		close_to(m->wait * plan.simulated_ms, 2 * half);
		close_to(m->bubble, 0);
	}
	plan_release(&plan);
	/* in four parts, each with a quarter of a backward pass of 8 ms and of the sum: the sums
	 * begin behind the first part, and take longer than the parts */
	o.reduce_parts = 0;
	read_plan(&p, &o, TWO, &plan);
	close_to(plan.simulated_ms, 4 * 12 - 6 + 2 * half);
	plan_release(&plan);
	o.reduce_parts = 1;
	/* in the order exact, members in turns (0 1 0 1 ..): each has four microbatches as terms */
	o.order = SUM_EXACT;
	read_plan(&p, &o, TWO, &plan);
	close_to(plan.simulated_ms, 4 * 12 + half + 0.1 + 4 * (half - 0.1));
	plan_release(&plan);
	o.order = SUM_FAST;
	read_plan(&p, &o, UNEQUAL, &plan);
	close_to(plan.simulated_ms, 6 * 12 + 2 * half);
	close_to(plan.stage[0].member[0].busy * plan.simulated_ms, 6 * 12);
	close_to(plan.stage[0].member[1].busy * plan.simulated_ms, 2 * 12);
	close_to(plan.stage[0].member[1].bubble * plan.simulated_ms, 4 * 12);
	plan_release(&plan);
	profile_release(&p);
}

/* A planner chooses stages, and passes of several sizes have one: it refuses several devices and
 * says what to write; for one device alone it has nothing to choose. */
static void every_planner_has_passes_or_says(const struct profile *p, const struct plan_options *o)
{
	const struct planner *pl;
	struct profile alone;
	struct plan plan;
	struct err e = { 0 };
	int made = 0;
	read_profile(&alone);
	assert_int_equal(profile_remove(&alone, "b", &e), 0);
	assert_int_equal(profile_remove(&alone, "c", &e), 0);
	for (size_t i = 0; (pl = planner_at(i)); i++) {
		if (pl->needs_plan)
			continue;
		int rc = planner_run(pl, p, o, &plan, &e);
		if (pl->takes_passes) { /* all devices share the stage */
			assert_int_equal(rc, 0);
			assert_true(plan.executable && plan.stages == 1 && !plan.left_outs);
			assert_memory_equal(plan.pass, o->pass,
					    (size_t)o->passes * sizeof *o->pass);
			plan_release(&plan);
		} else {
			assert_int_equal(rc, ERR_USAGE);
			assert_non_null(strstr(e.msg, pl->name));
			assert_non_null(strstr(e.msg, "write 'shard_plan: [{id: [a, b, c], "
						      "start: 0, end: 4}]', or "
						      "leave 'passes' out"));
		}
		rc = planner_run(pl, &alone, o, &plan, &e);
		printf("%s: %s\n", pl->name, rc < 0 ? e.msg : "one device alone has the passes");
		if (rc < 0)
			continue;
		assert_int_equal(plan.microbatches, o->passes);
		assert_memory_equal(plan.pass, o->pass, (size_t)o->passes * sizeof *o->pass);
		close_to(plan.simulated_ms, 8 * 12);
		plan_release(&plan);
		made++;
	}

	assert_true(made >= 4);
	profile_release(&alone);
}

/* Passes of 3, 1, 2 and 2 rows, dealt in turns: a has 3 and 2 of them, b 1 and 2. */
static void test_passes(void **state)
{
	struct profile p;
	struct plan plan, again;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	struct buf out = BUF_INIT;
	static const int pass[] = { 3, 1, 2, 2 };
	const double half = 0.1 + 20.0 * 1048576 / 4e9 * 1e3;
	(void)state;
	read_profile(&p);
	o.microbatch = 1;
	o.pass = pass;
	o.passes = 4;
	read_plan(&p, &o, TWO, &plan);
	assert_true(plan.executable && plan.microbatches == 4);
	close_to(plan.simulated_ms, 5 * 12 + 2 * half);
	close_to(plan.stage[0].member[0].busy * plan.simulated_ms, 5 * 12);
	close_to(plan.stage[0].member[1].busy * plan.simulated_ms, 3 * 12);
	close_to(plan.stage[0].member[0].memory_gib - plan.stage[0].member[1].memory_gib,
		 4 * 0.5 * (3 - 2) + 64.0 * 64 * 4 * (3 - 2) / GIB);
	assert_int_equal(plan.stage[0].member[0].samples, 5);
	assert_int_equal(plan.stage[0].member[1].microbatch, 2);
	plan_to_json(&p, &plan, &out);
	assert_non_null(strstr(out.p, "\"passes\": [3, 1, 2, 2]"));
	plan_release(&plan);
	/* written and read without being told; by another job */
	o.pass = NULL;
	assert_int_equal(plan_read_text(&p, &o, out.p, out.n, "plan", &again, &e), 0);
	close_to(again.simulated_ms, 5 * 12 + 2 * half);
	assert_memory_equal(again.pass, pass, sizeof pass);
	plan_release(&again);
	o.pass = (const int[]){ 2, 1, 3, 2 };
	assert_int_equal(plan_read_text(&p, &o, out.p, out.n, "plan", &again, &e), ERR_USAGE);
	o.pass = pass;
	/* one device alone; a planner that would need more than one stage */
	read_plan(&p, &o, ONE, &plan);
	close_to(plan.simulated_ms, 8 * 12);
	plan_release(&plan);
	every_planner_has_passes_or_says(&p, &o);
	o.pass = NULL;
	/* each member with a size of its own: 3 + 1 + 3 + 1 */
	read_plan(&p, &o,
		  "{\"layers\": [0, 4], \"devices\": [{\"id\": \"a\", \"microbatch\": 3, "
		  "\"microbatches\": 2}, {\"id\": \"b\", \"microbatch\": 1, \"microbatches\": 2}]}",
		  &plan);
	assert_memory_equal(plan.pass, ((const int[]){ 3, 1, 3, 1 }), sizeof pass);
	close_to(plan.simulated_ms, 6 * 12 + 2 * half);
	assert_true(plan.executable);
	plan_release(&plan);
	static const char *const bad[] = { "[3, 1, 2, 1]", "[3, 0, 3, 2]", "[]", "7",
					   "[8, \"1\"]" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char text[400];
		snprintf(text, sizeof text, "{\"version\": 1, \"passes\": %s, \"stages\": [%s]}",
			 bad[i], TWO);
		assert_int_equal(plan_read_text(&p, &o, text, strlen(text), "plan", &again, &e),
				 ERR_INPUT);
		assert_non_null(strstr(e.msg, "'passes' must"));
	}
	buf_release(&out);
	profile_release(&p);
}

/* Two slow devices before one that is twice as fast: it computes without a pause between the first
 * microbatch and the last. Messages are 64 * 64 * 2 bytes; the first two come at once, so they
 * share the network card of the third. */
static void test_pipeline(void **state)
{
	struct profile p;
	struct plan plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	const double half = 0.1 + 10.0 * 1048576 / 4e9 * 1e3, message = 0.2 + 8192 / 1e9 * 1e3;
	(void)state;
	read_profile(&p);
	o.reduce_parts = 1;
	o.sched = sched_find("gpipe");
	read_plan(&p, &o, TWO_AND_ONE, &plan);
	plan.sched = o.sched;
	struct err e = { 0 };
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	close_to(plan.simulated_ms, 2 + 8 * 3 + 4 + 2 * message + 8192 / 1e9 * 1e3 + 2 * half);
	const struct plan_member *m = &plan.stage[1].member[0];
	close_to(m->busy * plan.simulated_ms, 8 * 3);
	plan_release(&plan);
	profile_release(&p);
}

/* Weights and state whole on each member; activations of its own microbatches; in the order exact
 * the gradients of what it cannot add up yet. */
static void test_memory(void **state)
{
	struct profile p;
	struct plan plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	const double gradient = 40.0 / 1024;
	(void)state;
	read_profile(&p);
	read_plan(&p, &o, UNEQUAL, &plan);
	const double fast[2] = { plan.stage[0].member[0].memory_gib,
				 plan.stage[0].member[1].memory_gib };
	/* one microbatch in flight of four layers at 0.5 GiB */
	close_to(fast[0], 1 + 3 * gradient + 4 * 0.5 + 64 * 64 * 4 / GIB);
	close_to(fast[1], fast[0]);
	plan_release(&plan);
	o.order = SUM_EXACT;
	read_plan(&p, &o, UNEQUAL, &plan);
	/* dealt a a b a a a b a: a holds the sums (0 1), 3, (4 5), 7; b holds 2, 6 */
	close_to(plan.stage[0].member[0].memory_gib - fast[0], 4 * gradient);
	close_to(plan.stage[0].member[1].memory_gib - fast[1], 2 * gradient);
	plan_release(&plan);
	read_plan(&p, &o, ONE, &plan);
	close_to(plan.stage[0].member[0].memory_gib - fast[0], 3 * gradient);
	plan_release(&plan);
	profile_release(&p);
}

/* auto: exact unless it takes more than 5 % longer or does not fit. */
static void test_auto_order(void **state)
{
	struct profile p;
	struct plan given, plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	(void)state;
	read_profile(&p);
	read_plan(&p, &o, TWO, &given);
	o.manual = &given;
	o.reduce_parts = 1;
	o.order_auto = true;
	/* 40 MiB of gradients: the first half four times */
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_int_equal(plan.order, SUM_FAST);
	const double fast_ms = plan.simulated_ms;
	plan_release(&plan);
	p.layer_state_gib /= 40;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_int_equal(plan.order, SUM_EXACT);
	assert_true(plan.simulated_ms < fast_ms && plan.fits);
	const double exact_gib = plan.stage[0].member[0].memory_gib;
	plan_release(&plan);
	/* it fits only without the nodes of the tree */
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = exact_gib - 1e-5;
	o.reserve_gib = 0;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_int_equal(plan.order, SUM_FAST);
	assert_true(plan.fits && plan.stage[0].member[0].memory_gib < exact_gib - 1e-5);
	plan_release(&plan);
	/* what is asked for stays */
	o.order_auto = false;
	o.order = SUM_EXACT;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.order == SUM_EXACT && !plan.fits);
	plan_release(&plan);
	/* recomputing makes room */
	o.recompute = PLAN_RECOMPUTE_AUTO;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.order == SUM_EXACT && plan.fits && plan.stage[0].recompute);
	plan_release(&plan);
	/* and where the job asks for it, every plan has it */
	o.recompute = PLAN_RECOMPUTE_ALWAYS;
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = 1000;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.fits && plan.stage[0].recompute);
	plan_release(&plan);
	plan_release(&given);
	profile_release(&p);
}

/* Shared state: gradients are whole, the rest by state_share; auto shares where it would not
 * fit. */
static void test_shared_state(void **state)
{
	struct profile p;
	struct plan given, plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	(void)state;
	read_profile(&p);
	o.reserve_gib = 0;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	read_plan(&p, &o, TWO, &given);
	const double whole = given.stage[0].member[0].memory_gib,
		     rest = 4 * p.layer_state_gib * (1 - profile_gradients(&p));
	assert_false(plan_shares_state(&given.stage[0]));
	const double alone_ms = given.simulated_ms;
	read_plan(&p, &o, SHARED, &plan);
	assert_true(plan_shares_state(&plan.stage[0]) && plan.executable);
	close_to(plan.stage[0].member[0].memory_gib, whole - 0.25 * rest);
	close_to(plan.stage[0].member[1].memory_gib, whole - 0.75 * rest);
	/* each gets its part of the sum, up to a window */
	close_to(plan.stage[0].member[0].links_gib,
		 fmin(0.75 * (4 * p.layer_state_gib - rest), 0.0625) +
			 fmin(0.25 * (4 * p.layer_state_gib - rest), 0.0625));
	/* half of a sum, then values go to the other member: bytes as before, but one after the
	 * other */
	assert_true(plan.simulated_ms > 0 && plan.simulated_ms < 2 * alone_ms);
	plan_release(&plan);
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = whole - 0.4 * rest;
	p.device[1].memory_gib = whole - 0.45 * rest;
	o.manual = &given;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_false(plan.fits);
	plan_over_error(&p, &o, &plan, &e);
	/* each key that is named makes it fit (the next assertions show it for two) */
	printf("  %s\n", e.msg);
	assert_non_null(strstr(e.msg, "it would fit with 'gradient_checkpointing: true', or "
				      "'optimizer: adamw_8bit', or 'shard: optimizer', or "
				      "'offload: [optimizer]'; what else helps: "));
	plan_release(&plan);
	o.share_auto = true;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.fits && plan_shares_state(&plan.stage[0]));
	/* by memory */
	close_to(plan.stage[0].member[0].state_share,
		 (whole - 0.4 * rest) / (2 * whole - 0.85 * rest));
	plan_release(&plan);
	plan_release(&given);
	/* written shares that do not fit: by how much, and what would */
	read_plan(&p, &o, SHARED, &given);
	o.share_auto = false;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_false(plan.fits);
	close_to(plan.over_gib, 0.15 * rest);
	plan_over_error(&p, &o, &plan, &e);
	printf("  %s\n", e.msg);
	assert_non_null(strstr(e.msg, "GiB more than"));
	assert_non_null(strstr(e.msg, "a smaller 'state_share' of this device"));
	plan_release(&plan);
	plan_release(&given);
	profile_release(&p);
}

/* An optimizer whose state cannot be divided. */
static void test_undivided_state(void **state)
{
	static const int halves[] = { STATE_WHOLE / 2, STATE_WHOLE / 2 }, members[] = { 2 };
	const struct optimizer whole = { .name = "global", .cut = CUT_NONE };
	struct config c = { .path = "config.yaml", .reduce = "auto" };
	const struct job j = { .cfg = &c, .optimizer = &whole };
	struct placement *place = mem_zalloc(sizeof *place);
	struct rules rules = RULES_NOW;
	struct err e = { 0 };
	(void)state;
	assert_non_null(place);
	place->stages = place->chunks = 1;
	place->members = members;
	place->state_share = halves;
	assert_int_equal(reduction_choose(&j, SUM_FAST, false, false, &rules, place, &e),
			 ERR_USAGE);
	assert_string_equal(e.msg, "config.yaml: sharing training state needs an optimizer whose "
				   "state can be divided, and that of 'global' cannot: write "
				   "'shard: none'");
	mem_free(place);
}

/* Values in pieces: every chunk is gathered twice but the last one; memory is that of two chunks
 * and of what is owned. */
static void test_shared_values(void **state)
{
	struct profile p;
	struct plan plan, given;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	(void)state;
	read_profile(&p);
	o.reserve_gib = 0;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	read_plan(&p, &o, SHARED, &plan);
	const double resident_ms = plan.simulated_ms, resident = plan.stage[0].member[0].memory_gib;
	assert_int_equal(plan_most_chunks(&plan), 4);
	assert_int_equal(plan_shard_values(&plan, 4, &e), 0);
	assert_int_equal(plan_check(&p, &plan, &e), 0);
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	assert_true(plan.executable && plan.chunks == 4 && plan.sched == &sched_breadth_first);
	assert_true(plan_plays_members(&plan, 0));
	/* what is trained is as large as the values: all of it is gathered */
	const double edge = 64.0 * 64 * 4 / 1073741824, lent = 2 * p.layer_gib + 2 * p.layer_gib,
		     all = 4 * (p.layer_gib + p.layer_state_gib),
		     kept = 4 * (4 * 0.5 + 2 * 4 * edge);
	close_to(plan.stage[0].member[0].memory_gib, lent + 0.75 * all + kept);
	close_to(plan.stage[0].member[1].memory_gib, lent + 0.25 * all + kept);
	/* each way of the link is full: its window */
	close_to(plan.stage[0].member[0].links_gib, 2 * 64.0 / 1024);
	/* between members on one host at 4 GB/s: the first gather is waited for, the others come
	 * beside computing or not; never more than all of them */
	const double gather_ms = (4 + 3) * p.layer_gib * 1073741824 * 0.75 / 4e9 * 1e3;
	assert_true(plan.simulated_ms < resident_ms + 2 * gather_ms + 10);
	/* inputs lie in memory for the longest rows; what the end keeps of a pass stays until its
	 * last layer's backward is done, and all passes but one wait */
	p.fullest = (struct curve){ .line = true, .given = true, .intercept = 1.5 };
	for (int i = 0; i < 2; i++)
		p.device[i].head_kept_gib = (struct curve){ .line = true, .slope = 0.125 };
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	close_to(plan.stage[0].member[0].memory_gib,
		 lent + 0.75 * all + kept + 4 * 0.5 * 2 * 4 * edge + 4 * 0.125);
	p.fullest = p.device[0].head_kept_gib = p.device[1].head_kept_gib = (struct curve){ 0 };
	plan_release(&plan);
	/* auto takes it where less is not enough */
	read_plan(&p, &o, TWO, &given);
	for (int i = 0; i < 2; i++)
		p.device[i].memory_gib = resident - 0.15;
	o.manual = &given;
	o.share_auto = true;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.stage[0].sharded);
	plan_release(&plan);
	/* a schedule that cannot gather: planned, not run */
	read_plan(&p, &o, SHARED, &plan);
	plan.stage[0].sharded = true;
	assert_int_equal(plan_simulate(&p, &o, &plan, &e), 0);
	assert_false(plan.executable);
	assert_non_null(strstr(plan.why_not, "does not gather values"));
	plan_release(&plan);
	plan_release(&given);
	profile_release(&p);
}

/* A trained embedding of 1/4 GiB that is also the head: the front has a gradient of its state, the
 * end one of its own, and nothing else. */
static void test_tied_gradients(void **state)
{
	struct profile p;
	(void)state;
	read_profile(&p);
	const double share = profile_gradients(&p), layers = 2 * p.layer_state_gib * share;
	p.tied = true;
	p.embedding_parameters = GIB / 16;
	p.embedding_state_gib = 1;
	p.head_state_gib = 0.25;
	close_to(cost_trained_gib(&p, 2, false, false), layers);
	close_to(cost_trained_gib(&p, 2, true, false), layers + share);
	close_to(cost_trained_gib(&p, 2, false, true), layers + 0.25);
	close_to(cost_trained_gib(&p, 2, true, true), layers + share + 0.25);
	profile_release(&p);
}

static void test_sum_time(void **state)
{
	struct profile p;
	struct sum_terms t = { 0 };
	struct err e = { 0 };
	const int device[] = { 0, 1, 2 }, place[] = { 0, 1, 2 };
	const double none[3] = { 0 }, B = 24.0 * 1048576;
	double scatter, reduce;
	(void)state;
	read_profile(&p);
	assert_int_equal(sum_terms_find(&t, SUM_FAST, place, 3, &e), 0);
	struct sum_group g = {
		.p = &p, .device = device, .n = 3, .terms = &t, .bytes = B, .up = none, .down = none
	};
	/* c gets a third from each of the others through one card */
	g.how = &reducer_direct;
	sum_time(&g, &scatter, &reduce);
	close_to(scatter, fmax(B / 3 * 2 / 1e9, 0.2e-3 + B / 3 / 1e9));
	close_to(reduce, scatter);
	/* four steps of a third by the slow link, the first of them ahead */
	g.how = &reducer_ring;
	sum_time(&g, &scatter, &reduce);
	close_to(scatter, B / 3 / 1e9);
	close_to(reduce, 3 * B / 3 / 1e9);
	/* up and down two levels, 1 MiB at a time */
	g.how = &reducer_tree;
	sum_time(&g, &scatter, &reduce);
	close_to(scatter, 0);
	close_to(reduce, 4 * (B / 1e9 + 24 * 0.2e-3));
	sum_terms_release(&t);
	profile_release(&p);
}

/* A processor's copies are part of its passes (cost_talk), so the sum and the gathering of values
 * before a pass take them only of cards and of members without passes; new values behind the step
 * take those of all. */
static void test_copies_once(void **state)
{
	struct profile p;
	struct sum_terms t = { 0 };
	struct err e = { 0 };
	const int device[] = { 0, 1, 2 }, place[] = { 0, 1, 1 };
	const double none[3] = { 0 }, up[] = { 4e-9, 2e-9, 1e-9 }, down[] = { 8e-9, 4e-9, 2e-9 };
	const double B = 24.0 * 1048576;
	struct plan_member m[] = { { .state_share = 0.5 },
				   { .state_share = 0.25 },
				   { .state_share = 0.25 } };
	double wire[2], with[2];
	(void)state;
	read_profile(&p);
	assert_int_equal(sum_terms_find(&t, SUM_FAST, place, 3, &e), 0);
	struct sum_group g = {
		.p = &p, .device = device, .n = 3, .terms = &t, .how = &reducer_direct, .bytes = B
	};
	for (int host = 0; host < 4; host++) {
		/* 0: cards; 1: the first is a processor; 2: the first two; 3: all */
		for (int i = 0; i < 3; i++)
			p.device[i].on_host = i < host;
		g.up = g.down = none;
		sum_time(&g, &wire[0], &wire[1]);
		const double gather = gather_time(&g, m, B, true);
		g.up = up;
		g.down = down;
		sum_time(&g, &with[0], &with[1]);
		/* the third runs no pass, so it has no term to bring down, but gets the sum */
		close_to(with[0] - wire[0], host == 0 ? 8e-9 * B : host == 1 ? 4e-9 * B : 0);
		close_to(with[1] - wire[1], host == 0 ? 4e-9 * B : host == 1 ? 2e-9 * B : 1e-9 * B);
		close_to(gather_time(&g, m, B, true) - gather, host == 0 ? (4e-9 + 2e-9) * B
							       : host == 1
								       ? (1e-9 + 1.5e-9) * B
								       : (0.5e-9 + 0.75e-9) * B);
		close_to(gather_time(&g, m, B, false) - gather, (4e-9 + 2e-9) * B);
	}
	sum_terms_release(&t);
	profile_release(&p);
}

/* What a device has in the memory of its host needs no room of its own: of parameters two chunks
 * stay, with whole gradients, of activations two microbatches of a chunk and the inputs at the end
 * of the model. */
static void test_offload(void **state)
{
	struct profile p;
	struct plan given, plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	(void)state;
	read_profile(&p);
	o.reserve_gib = 0;
	o.recompute = PLAN_RECOMPUTE_NEVER;
	read_plan(&p, &o, ONE, &given);
	const double edge = 64.0 * 64 * 4 / GIB, whole = given.stage[0].member[0].memory_gib,
		     state_gib = 4 * p.layer_state_gib,
		     gradients = state_gib * profile_gradients(&p), alone_ms = given.simulated_ms;
	close_to(whole, 1 + state_gib + 4 * 0.5 + edge);
	o.manual = &given;
	o.offload = OFFLOAD_PARAMETERS;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.executable && plan.offload == OFFLOAD_PARAMETERS && plan.chunks == 4);
	const struct plan_member *m = &plan.stage[0].member[0];
	close_to(m->memory_gib, 2 * 0.25 + 2 * 0.25 + 8 * (4 * 0.5 + 2 * 4 * edge));
	close_to(m->host_gib, 4 * 0.25 + state_gib + 4.0 / 1024);
	assert_true(plan.simulated_ms >= alone_ms);
	plan_release(&plan);
	o.offload |= OFFLOAD_ACTIVATIONS;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	m = &plan.stage[0].member[0];
	close_to(m->memory_gib, 2 * 0.25 + 2 * 0.25 + 2 * (0.5 + 3 * edge) + 8 * 3 * edge);
	/* inputs of two chunks, gradients for one */
	close_to(m->host_gib, 4 * 0.25 + state_gib + 4.0 / 1024 + 8 * 3 * edge);
	const double host_gib = m->host_gib;
	plan_release(&plan);
	for (int i = 0; i < p.devices; i++)
		p.device[i].host_memory_gib = host_gib - 0.125;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(!plan.fits && plan.over_host);
	close_to(plan.over_gib, 0.125);
	assert_true(plan_over_error(&p, &o, &plan, &e) < 0 && strstr(e.msg, "GiB more than the"));
	for (int i = 0; i < p.devices; i++)
		p.device[i].host_memory_gib = host_gib + 0.125;
	plan_release(&plan);
	o.offload = OFFLOAD_OPTIMIZER;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.chunks == 1 && plan.sched == sched_default());
	close_to(plan.stage[0].member[0].memory_gib, whole - state_gib + gradients);
	close_to(plan.stage[0].member[0].host_gib, 4 * 0.25 + state_gib + 4.0 / 1024);
	/* the host's update: as measured, else as assumed */
	close_to(plan.simulated_ms, alone_ms + 1e3 * PROFILE_HOST_UPDATE_S * state_gib);
	plan_release(&plan);
	p.device[0].host_update_s = 0.05;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	close_to(plan.simulated_ms, alone_ms + 1e3 * 0.05 * state_gib);
	plan_release(&plan);
	/* auto: nothing where it fits, else the first that is enough */
	o.offload = 0;
	o.offload_auto = true;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.fits && !plan.offload);
	plan_release(&plan);
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = 2.5;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(plan.fits && plan.executable);
	assert_int_equal(plan.offload, OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS);
	plan_release(&plan);
	assert_int_equal(planner_run(planner_find("best"), &p, &o, &plan, &e), 0);
	assert_true(plan.fits && plan.executable);
	plan_release(&plan);
	for (int i = 0; i < p.devices; i++)
		p.device[i].memory_gib = 0.6;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(!plan.fits && !plan.offload);
	assert_true(plan_over_error(&p, &o, &plan, &e) < 0 && strstr(e.msg, "GiB more than"));
	printf("  %s\n", e.msg);
	assert_non_null(strstr(e.msg, "sharing, offload and adamw_8bit do not suffice; what "
				      "helps: 4-bit weights"));
	plan_release(&plan);
	/* a processor has nothing to offload */
	for (int i = 0; i < p.devices; i++)
		p.device[i].on_host = true;
	o.offload = OFFLOAD_PARAMETERS;
	assert_int_equal(planner_run(&planner_manual, &p, &o, &plan, &e), 0);
	assert_true(!plan.offload && plan.chunks == 1);
	plan_release(&plan);
	plan_release(&given);
	profile_release(&p);
}

/* A plan of the user's and the key `shard`. */
static int given_plan(const char *stages, struct config *c, struct job_plan *jp, struct err *e)
{
	char path[] = "/tmp/hs-plan-XXXXXX", text[1000];
	const int fd = mkstemp(path),
		  n = snprintf(text, sizeof text, "{\"version\": 1, \"microbatch\": 1, %s]}",
			       stages);
	assert_true(fd >= 0 && write(fd, text, (size_t)n) == n);
	close(fd);
	*jp = (struct job_plan){ .options = PLAN_OPTIONS_DEFAULT };
	read_profile(&jp->profile);
	c->path = "config.yaml";
	c->interleave = 4;
	int rc = job_plan_given(jp, c, path, e);
	unlink(path);
	return rc;
}

static void test_given_plan_and_shard(void **state)
{
	struct config c = { .shard = SHARD_STATES };
	struct job_plan jp;
	struct err e = { 0 };
	(void)state;
	assert_int_equal(given_plan("\"stages\": [" TWO, &c, &jp, &e), 0);
	const struct plan_stage *s = &jp.manual.stage[0];
	assert_true(plan_shares_state(s) && !s->sharded);
	close_to(s->member[0].state_share, 0.5);
	job_plan_release(&jp);
	/* shares of the state that are written stay */
	c.shard = SHARD_VALUES;
	assert_int_equal(given_plan("\"stages\": [" SHARED, &c, &jp, &e), 0);
	assert_true(jp.manual.stage[0].sharded && jp.manual.chunks == 4);
	close_to(jp.manual.stage[0].member[0].state_share, 0.75);
	job_plan_release(&jp);
	/* chunks too */
	assert_int_equal(
		given_plan("\"schedule\": \"breadth_first\", \"chunks\": 2, \"stages\": "
			   "[{\"layers\": [0, 2], \"devices\": [" MEMBER("a", 1) ", " MEMBER(
				   "b", 1) "]}, {\"layers\": [2, 4], \"devices\": "
					   "[" MEMBER("a", 1) ", " MEMBER("b", 1) "]}",
			   &c, &jp, &e),
		0);
	s = &jp.manual.stage[0];
	assert_true(s->sharded && jp.manual.chunks == 2);
	close_to(s->member[0].state_share, 0.5);
	job_plan_release(&jp);
	/* nobody to share with */
	assert_int_equal(given_plan("\"stages\": [" ONE, &c, &jp, &e), ERR_USAGE);
	assert_string_equal(e.msg, "config.yaml: 'shard: parameters' needs a group: a list of ids "
				   "in an entry of 'shard_plan'");
	job_plan_release(&jp);
}

/* A line and an entry for each member, with its own figures. */
static void test_judge(void **state)
{
	struct job_plan jp = { .options = PLAN_OPTIONS_DEFAULT };
	struct judge j;
	struct err e = { 0 };
	struct buf text = BUF_INIT, json = BUF_INIT;
	char dir[] = "/tmp/hs-judge-XXXXXX", path[100];
	(void)state;
	read_profile(&jp.profile);
	read_plan(&jp.profile, &jp.options, TWO_AND_ONE, &jp.plan);
	assert_int_equal(judge_init(&j, &jp, &e), 0);
	for (int step = 0; step < 3; step++) {
		const struct train_stage row[3] = { { .busy = 1, .mem_peak = 1ull << 30 },
						    { .busy = 2, .mem_peak = 2ull << 30 },
						    { .busy = 3, .mem_peak = 3ull << 30 } };
		assert_int_equal(judge_step(&j, 512, 5, row, &e), 0);
	}
	assert_true(judge_end(&j));
	judge_text(&j, &text);
	assert_non_null(strstr(text.p, "memory of stage 0 ('b')"));
	assert_non_null(strstr(text.p, "measured 2.000 GiB"));
	assert_non_null(strstr(text.p, "memory of stage 1 ('c')"));
	assert_non_null(strstr(text.p, "what differed most: stage 1 ('c') computed 3000 ms"));
	assert_non_null(strstr(text.p, "'heteroshard profile --refresh CONFIG' measures it again"));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(judge_write(&j, dir, &e), 0);
	snprintf(path, sizeof path, "%s/prediction.json", dir);
	assert_int_equal(buf_read_file(&json, path, 1 << 20, &e), 0);
	assert_non_null(strstr(json.p, "{\"id\": \"b\", \"stage\": 0, "));
	assert_non_null(strstr(json.p, "{\"id\": \"c\", \"stage\": 1, "));
	unlink(path);
	rmdir(dir);
	buf_release(&text);
	buf_release(&json);
	judge_release(&j);
	job_plan_release(&jp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two),
		cmocka_unit_test(test_pipeline),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_auto_order),
		cmocka_unit_test(test_tied_gradients),
		cmocka_unit_test(test_sum_time),
		cmocka_unit_test(test_copies_once),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_shared_state),
		cmocka_unit_test(test_shared_values),
		cmocka_unit_test(test_offload),
		cmocka_unit_test(test_undivided_state),
		cmocka_unit_test(test_passes),
		cmocka_unit_test(test_given_plan_and_shard),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
