/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_rebalance.c - when work moves while a job runs, on a simulated clock: the steps of a
 * job of three workers are simulated with the speeds that they have, and what the coordinator would
 * measure of them goes into the decision. A worker is throttled, released, flickers; a link becomes
 * slow; work would move too late, or for too little. */
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "plan/drift.h"
#include "plan/rebalance.h"
#include "train/speeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3 };

/* Twelve layers; every device needs 10 + 20 ms for one of 8 microbatches. */
#define DEVICE(id, host)                                                                           \
	"{\"id\": \"" id "\", \"kind\": \"k\", \"host\": \"" host                                  \
	"\", \"memory_gib\": 100, \"forward_ms\": {\"linear\": [10, 0]}, \"backward_ms\": "        \
	"{\"linear\": [20, 0]}, \"kept_gib\": {\"linear\": [0.1, 0]}}"
static const char text[] =
	"{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 12, \"hidden\": 64, "
	"\"parameters\": 1200, \"parameters_per_layer\": 100, \"embedding_parameters\": 0, "
	"\"head_parameters\": 0, \"layer_gib\": 0.01, \"layer_state_gib\": 0.01, "
	"\"embedding_gib\": 0, \"head_gib\": 0, \"embedding_state_gib\": 0, \"head_state_gib\": "
	"0}, \"sequence_len\": 64, \"dtype\": \"float32\", \"global_batch\": 8, \"devices\": "
	"[" DEVICE("a", "x") ", " DEVICE("b", "y") ", " DEVICE(
		"c", "z") "], \"links\": [{\"hosts\": [\"*\", \"*\"], "
			  "\"bandwidth_gbytes_per_s\": 0.1, \"latency_ms\": 0.2}]}";

struct sim {
	struct plan_options o;
	const struct planner *planner; /* NULL: the user's plan */
	struct plan plan;              /* that runs, simulated with the speeds it was made for */
	struct drift drift;
	uint64_t steps, left;
	double clock, step_s;
	int moves;
	char slow_links[64]; /* "0>1 " each */
};

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

/* The profile in which devices need so many times as long. */
static void profile_of(struct profile *p, const double *slow)
{
	struct err e = { 0 };
	must(profile_read_text(p, text, sizeof text - 1, "profile", &e), &e);
	for (int i = 0; i < N; i++)
		must(profile_slow_device(p, i, slow[i], &e), &e);
}

/* `stages` NULL: the planner's. */
static void sim_begin(struct sim *s, const char *stages, const struct planner *planner)
{
	static const double as_measured[N] = { 1, 1, 1 };
	char plan[1000];
	struct profile p;
	struct err e = { 0 };
	*s = (struct sim){ .o = PLAN_OPTIONS_DEFAULT, .planner = planner, .left = 1000 };
	s->o.microbatch = 1;
	profile_of(&p, as_measured);
	snprintf(plan, sizeof plan, "{\"version\": 1, \"microbatch\": 1, \"stages\": [%s]}",
		 stages ? stages : "");
	must(stages ? plan_read_text(&p, &s->o, plan, strlen(plan), "plan", &s->plan, &e)
		    : planner_run(planner, &p, &s->o, &s->plan, &e),
	     &e);
	must(drift_init(&s->drift, N, &e), &e);
	profile_release(&p);
}

static void sim_end(struct sim *s)
{
	plan_release(&s->plan);
	drift_release(&s->drift);
}

static double noise(uint64_t step, int i)
{
	return 1 + rng_uniform(rng_key(7), 16 * step + (uint64_t)i, -0.03f, 0.03f);
}

/* What the plan's step takes with these speeds; busy[N] of each device, seconds. */
static double step_of(const struct sim *s, const double *slow, double *busy)
{
	struct profile p;
	struct plan real;
	struct err e = { 0 };
	profile_of(&p, slow);
	must(plan_near(&p, &s->o, &s->plan, NEAR_NOTHING, &real, &e), &e);
	for (int i = 0; i < N; i++)
		busy[i] = 0;
	for (int k = 0; k < real.stages; k++)
		for (int i = 0; i < real.stage[k].members; i++)
			busy[real.stage[k].member[i].device] =
				real.stage[k].member[i].busy * real.simulated_ms / 1e3;
	const double seconds = real.simulated_ms / 1e3;
	plan_release(&real);
	profile_release(&p);
	return seconds;
}

static void measure(struct sim *s, const double *slow, double link)
{
	struct drift_sample v[N];
	double busy[N];
	int n = 0;
	s->step_s = step_of(s, slow, busy);
	for (int k = 0; k < s->plan.stages; k++)
		for (int i = 0; i < s->plan.stage[k].members; i++) {
			const struct plan_member *m = &s->plan.stage[k].member[i];
			const bool last = k + 1 == s->plan.stages;
			v[n] = (struct drift_sample){
				.member = m->device,
				.next = last ? -1 : s->plan.stage[k + 1].member[0].device,
				.expected = m->busy * s->plan.simulated_ms / 1e3,
				.measured = busy[m->device] * noise(s->steps, m->device)
			};
			/* a throttled process is late with its messages too */
			for (int w = 0; w < DRIFT_WAYS && !last; w++) {
				v[n].bytes[w] = 1e6;
				v[n].flight[w] = 0.1 * noise(s->steps, 9) * slow[m->device] *
						 (w == DRIFT_TO_NEXT && m->device == 1 ? link : 1);
			}
			n++;
		}
	drift_step(&s->drift, s->step_s, v, n);
	s->clock += s->step_s;
	s->steps++;
	s->left--;
}

static void decide(struct sim *s)
{
	struct profile p;
	struct err e = { 0 };
	struct rebalance_answer a;
	double level[N];
	int from;
	enum drift_way way;
	while (drift_link_news(&s->drift, &from, &way) > 0)
		snprintf(s->slow_links + strlen(s->slow_links), 8, "%d%c ", from,
			 way == DRIFT_TO_NEXT ? '>' : '<');
	if (!drift_due(&s->drift))
		return;
	for (int i = 0; i < N; i++)
		level[i] = drift_level(&s->drift, i);
	profile_of(&p, level);
	const struct rebalance r = { .p = &p,
				     .o = &s->o,
				     .now = &s->plan,
				     .planner = s->planner,
				     .gain = 0.1,
				     .left = s->left,
				     .moving = 1 };
	must(rebalance_choose(&r, &a, &e), &e);
	if (a.moves) {
		plan_release(&s->plan);
		s->plan = a.plan;
		s->clock += a.moving_s;
		s->moves++;
		drift_moved(&s->drift);
		drift_plan(&s->drift);
	}
	profile_release(&p);
}

static void run(struct sim *s, int steps, const double *slow, double link)
{
	for (int i = 0; i < steps; i++) {
		measure(s, slow, link);
		decide(s);
	}
}

/* The share of what a fresh plan for these speeds gives. */
static double of_a_fresh_plan(const struct sim *s, const double *slow)
{
	struct profile p;
	struct plan best;
	struct err e = { 0 };
	double busy[N], now = step_of(s, slow, busy);
	profile_of(&p, slow);
	must(planner_run(planner_default(), &p, &s->o, &best, &e), &e);
	const double share = best.simulated_ms / 1e3 / now;
	plan_release(&best);
	profile_release(&p);
	return share;
}

#define STAGE(id, first, last)                                                                     \
	"{\"layers\": [" #first ", " #last "], \"devices\": [{\"id\": \"" id "\"}]}"
#define EVEN STAGE("a", 0, 4) ", " STAGE("b", 4, 8) ", " STAGE("c", 8, 12)
#define MEMBER(id) "{\"id\": \"" id "\", \"share\": 1, \"state_share\": 1}"
#define GROUP "{\"layers\": [0, 12], \"devices\": [" MEMBER("a") ", " MEMBER("b") "]}"

static const double fast[N] = { 1, 1, 1 }, third[N] = { 1, 3, 1 };

/* Throttled to a third in mid-run, released 100 steps later: 20 steps after each the job has 90 %
 * of what a fresh plan gives. */
static void throttled_and_released(void **state)
{
	const struct planner *const planner[] = { planner_default(), NULL };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(planner); i++) {
		struct sim s;
		sim_begin(&s, planner[i] ? NULL : EVEN, planner[i]);
		run(&s, 50, fast, 1);
		assert_int_equal(s.moves, 0);
		/* the user's stages are not the fastest ones */
		const double before = of_a_fresh_plan(&s, fast);
		assert_true(before >= (planner[i] ? 0.99 : 0.8));
		run(&s, 20, third, 1);
		double share = of_a_fresh_plan(&s, third);
		printf("  %s: throttled: %.0f %% of a fresh plan after 20 steps",
		       planner[i] ? "planner" : "the user's stages", 100 * share);
		assert_true(fabs(drift_level(&s.drift, 1) - 3) < 0.2);
		assert_true(share >= 0.9 * before);
		assert_int_equal(s.moves, 1);
		run(&s, 80, third, 1);
		assert_int_equal(s.moves, 1);
		run(&s, 20, fast, 1);
		share = of_a_fresh_plan(&s, fast);
		printf("; released: %.0f %%\n", 100 * share);
		assert_true(share >= 0.9 * before);
		assert_int_equal(s.moves, 2);
		sim_end(&s);
	}
}

/* In turns slow and fast for so many steps each. */
static int moves_of_flicker(int period)
{
	struct sim s;
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	for (int i = 0; i < 300 / period; i++)
		run(&s, period, i % 2 ? fast : third, 1);
	const int moves = s.moves;
	sim_end(&s);
	return moves;
}

static void flickers(void **state)
{
	(void)state;
	for (int period = 1; period <= 3; period++) {
		const int moves = moves_of_flicker(period);
		printf("  slow and fast for %d steps in turns: %d moves in 300 steps\n", period,
		       moves);
		assert_true(moves <= 2);
	}
	/* long turns: it moves, but more and more rarely */
	const int moves = moves_of_flicker(12);
	printf("  for 12 steps: %d moves in 300 steps\n", moves);
	assert_true(moves <= 6);
}

/* The link is named, not the worker, and nobody's work moves; a slow worker is never a link. */
static void a_slow_link(void **state)
{
	struct sim s;
	int from;
	enum drift_way way;
	(void)state;
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	run(&s, 20, fast, 8);
	assert_string_equal(s.slow_links, "1> ");
	assert_true(fabs(drift_link_level(&s.drift, 1, DRIFT_TO_NEXT) - 8) < 1);
	assert_true(drift_link_level(&s.drift, 1, DRIFT_FROM_NEXT) < 1.1);
	for (int i = 0; i < N; i++)
		assert_true(fabs(drift_level(&s.drift, i) - 1) < 0.1);
	assert_int_equal(s.moves, 0);
	for (int i = 0; i < 12; i++)
		measure(&s, fast, 1);
	assert_int_equal(drift_link_news(&s.drift, &from, &way), -1);
	assert_int_equal(from, 1);
	assert_int_equal(drift_link_news(&s.drift, &from, &way), 0);
	sim_end(&s);
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	run(&s, 60, third, 1);
	assert_string_equal(s.slow_links, "");
	assert_int_equal(s.moves, 1);
	sim_end(&s);
}

/* A link that is slow and fast in turns is named, but not for each turn; nor again at once when one
 * of its ends was lost and has come back. */
static void a_link_that_flickers(void **state)
{
	struct sim s;
	int from, news = 0;
	enum drift_way way;
	(void)state;
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	for (int i = 0; i < 600; i++) {
		measure(&s, fast, i / 12 % 2 ? 1 : 8);
		news += drift_link_news(&s.drift, &from, &way) != 0;
		if (i == 300)
			drift_forget(&s.drift, 1);
	}
	printf("  50 changes of a link: %d times said\n", news);
	assert_true(news >= 2 && news <= 8);
	sim_end(&s);
}

/* One slow worker is not a busy machine. */
static void all_are_slow(void **state)
{
	static const double twice[N] = { 2, 2, 2 };
	(void)state;
	for (int all = 0; all < 2; all++) {
		struct sim s;
		sim_begin(&s, EVEN, NULL);
		assert_true(drift_middle(&s.drift) == 1);
		for (int i = 0; i < 12; i++)
			measure(&s, all ? twice : third, 1);
		assert_true(fabs(drift_middle(&s.drift) - (all ? 2 : 1)) < 0.1);
		assert_true(all || drift_most(&s.drift) == 1);
		sim_end(&s);
	}
}

/* In a group other shares are enough. */
static void shares_first(void **state)
{
	struct sim s;
	(void)state;
	sim_begin(&s, GROUP, NULL);
	run(&s, 20, fast, 1);
	run(&s, 20, third, 1);
	assert_int_equal(s.moves, 1);
	assert_int_equal(s.plan.stages, 1);
	assert_int_equal(s.plan.stage[0].member[0].microbatches, 6);
	assert_int_equal(s.plan.stage[0].member[1].microbatches, 2);
	run(&s, 20, fast, 1);
	assert_int_equal(s.moves, 2);
	assert_int_equal(s.plan.stage[0].member[0].microbatches, 4);
	sim_end(&s);
}

/* Nothing moves for a small change, nor when the steps left do not pay for it. */
static void not_worth_it(void **state)
{
	const double little[N] = { 1, 1.12, 1 };
	struct sim s;
	(void)state;
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	run(&s, 100, little, 1);
	assert_int_equal(s.moves, 0);
	s.left = 9; /* one of them when it is noticed */
	run(&s, 9, third, 1);
	assert_int_equal(s.moves, 0);
	sim_end(&s);
	assert_true(rebalance_may_pay(0.1, 0.1, 100, 2));
	assert_false(rebalance_may_pay(0.1, 0.1, 20, 2));
	assert_false(rebalance_may_pay(0.01, 0.1, 100000, 2));
}

/* Slow once is not slow for ever: another process under the same number begins anew, and one that
 * lost all its work is tried again. */
static void forgotten(void **state)
{
	struct sim s;
	(void)state;
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	run(&s, 30, third, 1);
	assert_true(drift_level(&s.drift, 1) > 2.5);
	drift_forget(&s.drift, 1);
	assert_true(drift_level(&s.drift, 1) == 1);
	sim_end(&s);
	const double hundredth[N] = { 1, 100, 1 };
	sim_begin(&s, NULL, planner_default());
	run(&s, 20, fast, 1);
	run(&s, 20, hundredth, 1);
	assert_false(plan_uses(&s.plan, 1));
	run(&s, 120, fast, 1);
	assert_true(plan_uses(&s.plan, 1));
	sim_end(&s);
}

/* ---- in a run ---- */

static bool there[N];

int session_members(const struct session *s)
{
	(void)s;
	return N;
}

bool session_has(const struct session *s, int member)
{
	(void)s;
	return there[member];
}

const struct seat_spec *session_spec(const struct session *s, int i)
{
	(void)s;
	static const struct seat_spec spec[N] = { { .id = "a" }, { .id = "b" }, { .id = "c" } };
	return &spec[i];
}

/* Two of three workers have a plan, and one of the two is throttled: work goes to the third, unless
 * it was left out at the start and has ended. */
static void who_has_ended_gets_nothing(void **state)
{
	static const double slow[N] = { 5, 1, 1 }, as_measured[N] = { 1, 1, 1 };
	(void)state;
	for (int ended = 0; ended < 2; ended++) {
		struct sim s;
		struct err e = { 0 };
		struct config c = { .rebalance = REBALANCE_ON, .rebalance_gain = 0.1 };
		struct job job = { .total_steps = 1000 };
		struct speeds_move m;
		there[0] = there[1] = true;
		there[2] = !ended;
		sim_begin(&s,
			  "{\"layers\": [0, 6], \"devices\": [{\"id\": \"a\"}]}, "
			  "{\"layers\": [6, 12], \"devices\": [{\"id\": \"b\"}]}",
			  NULL);
		for (int k = 0; k < 2 * DRIFT_LONG; k++)
			measure(&s, slow, 1);
		struct trainer t = {
			.cfg = &c,
			.job = &job,
			.stays = true,
			.planned = true,
			.moving = 1,
			.drift = s.drift,
			.job_plan = { .plan = s.plan, .options = s.o, .planner = &planner_best }
		};
		profile_of(&t.job_plan.profile, as_measured);
		for (int k = 0; k < RECENT; k++)
			t.recent[k] = s.step_s;
		must(speeds_look(&t, &m, &e), &e);
		if (m.plan.plan.stages < 1 || plan_uses(&m.plan.plan, 2) == (bool)ended)
			fail_msg("%s the third worker: %d stages, it is %sin the plan",
				 ended ? "without" : "with", m.plan.plan.stages,
				 m.plan.plan.stages && plan_uses(&m.plan.plan, 2) ? "" : "not ");
		plan_release(&m.plan.plan);
		profile_release(&m.plan.profile);
		profile_release(&t.job_plan.profile);
		sim_end(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(throttled_and_released),
		cmocka_unit_test(flickers),
		cmocka_unit_test(a_slow_link),
		cmocka_unit_test(a_link_that_flickers),
		cmocka_unit_test(shares_first),
		cmocka_unit_test(all_are_slow),
		cmocka_unit_test(not_worth_it),
		cmocka_unit_test(forgotten),
		cmocka_unit_test(who_has_ended_gets_nothing),
	};
	return cmocka_run_group_tests_name("plan_rebalance", tests, NULL, NULL);
}
