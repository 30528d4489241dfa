/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_experts.c - plans with experts on other devices: dealt by speed and by measured
 * routing, found beside pipelines, written and read again, and explained. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/deal.h"
#include "plan/experts.h"
#include "plan/explain.h"
#include "plan/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 4, EXPERTS = 8 };

#define DEVICE(id, forward, backward, xf, xb)                                                      \
	"{\"id\": \"" id "\", \"kind\": \"card\", \"host\": \"box\", \"memory_gib\": 100, "        \
	"\"forward_ms\": {\"linear\": [" forward ", 0]}, "                                         \
	"\"backward_ms\": {\"linear\": [" backward ", 0]}, "                                       \
	"\"experts_forward_ms\": {\"linear\": [" xf ", 0]}, "                                      \
	"\"experts_backward_ms\": {\"linear\": [" xb ", 0]}, "                                     \
	"\"kept_gib\": {\"linear\": [0.01, 0]}}"
/* One that is fast at both, two that take ten times as long for attention and a third more for
 * experts. */
#define DEVICES                                                                                    \
	DEVICE("new", "20", "40", "10", "20")                                                      \
	", " DEVICE("old1", "114", "228", "14", "28") ", " DEVICE("old2", "114", "228", "14", "28")

static void make_profile(struct profile *p, const char *routing, const char *devices)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"mixture\", \"layers\": %d, "
		 "\"hidden\": 64, \"parameters_per_layer\": 1e8, \"parameters\": 5e8, "
		 "\"experts\": %d, \"top_k\": 2, \"expert_parameters\": 1e7%s%s}, "
		 "\"sequence_len\": 128, \"dtype\": \"float32\", \"global_batch\": 8, "
		 "\"devices\": [%s], \"links\": []}",
		 LAYERS, EXPERTS, routing ? ", \"routing\": " : "", routing ? routing : "",
		 devices);
	if (profile_read_text(p, b.p, b.n, "a profile", &e) < 0)
		fail_msg("%s", e.msg);
	buf_release(&b);
}

static struct plan_options options(void)
{
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	o.microbatch = 1;
	o.groups = true;
	return o;
}

static void find_best(const struct profile *p, struct plan *plan)
{
	const struct plan_options o = options();
	struct err e = { 0 };
	if (planner_run(planner_find("best"), p, &o, plan, &e) < 0)
		fail_msg("%s", e.msg);
}

/* One place after the other, as much load as speed. */
static void dealt_by_load(void **state)
{
	(void)state;
	static const struct {
		double load[EXPERTS], speed[3];
		const char *place;
	} cases[] = {
		{ { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0, 1, 1 }, "11112222" },
		{ { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 0, 3 }, "00222222" },
		{ { 5, 1, 1, 1, 1, 1, 1, 1 }, { 0, 1, 1 }, "11222222" },
		{ { 1, 1, 1, 1, 1, 1, 5, 1 }, { 0, 1, 1 }, "11111122" },
		{ { 1, 0, 0, 0, 0, 0, 0, 0 }, { 0, 1, 1 }, "12222222" },
		{ { 0, 0, 0, 0, 0, 0, 0, 1 }, { 0, 1, 1 }, "11111112" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t place[EXPERTS];
		char text[EXPERTS + 1] = { 0 };
		double load[EXPERTS], sum = 0;
		for (int x = 0; x < EXPERTS; x++)
			sum += cases[i].load[x];
		for (int x = 0; x < EXPERTS; x++)
			load[x] = cases[i].load[x] / sum;
		deal_by_speed(0, EXPERTS, load, cases[i].speed, 3, place);
		for (int x = 0; x < EXPERTS; x++)
			text[x] = (char)('0' + place[x]);
		assert_string_equal(text, cases[i].place);
		deal_by_speed(0, EXPERTS, NULL, cases[i].speed, 3, place);
		assert_true(i > 1 || place[EXPERTS / 2] == text[EXPERTS / 2] - '0');
	}
}

#define EVEN "[1, 1, 1, 1, 1, 1, 1, 1]"
#define FIRST "[40, 1, 1, 1, 1, 1, 1, 1]"
#define LAST "[1, 1, 1, 1, 1, 1, 1, 40]"

/* Experts go away, and by what was measured of routing each member gets as much as the others. */
static void routing_decides(void **state)
{
	(void)state;
	struct profile even, uneven;
	struct plan a, b;
	double load[2] = { 0 };
	make_profile(&even, NULL, DEVICES);
	make_profile(&uneven, "[" FIRST ", " FIRST ", " FIRST ", []]", DEVICES);
	assert_true(fabs(profile_expert_load(&uneven, 1, 0) - 40.0 / 47) < 1e-9);
	assert_true(fabs(profile_expert_load(&uneven, 3, 7) - 1.0 / 8) < 1e-9);
	find_best(&even, &a);
	find_best(&uneven, &b);
	assert_non_null(a.stage[0].deal);
	assert_non_null(b.stage[0].deal);
	assert_true(memcmp(a.stage[0].deal, b.stage[0].deal, LAYERS * EXPERTS) != 0);
	/* the plan that takes routing for even is slower than it believes */
	const struct plan_options o = options();
	struct err e = { 0 };
	const double believed = a.simulated_ms;
	if (plan_simulate(&uneven, &o, &a, &e) < 0)
		fail_msg("%s", e.msg);
	printf("even routing: %.1f ms; with what was measured %.1f, and %.1f where that was "
	       "known\n",
	       believed, a.simulated_ms, b.simulated_ms);
	assert_true(a.simulated_ms > 1.02 * believed);
	assert_true(b.simulated_ms < 0.98 * a.simulated_ms);
	for (int i = 0; i < 2; i++)
		for (int l = 0; l < LAYERS; l++)
			load[i] += plan_expert_load(i ? &uneven : &even, i ? &b : &a, 0, l, 0);
	assert_true(load[0] < LAYERS && load[1] < LAYERS);
	plan_release(&a);
	plan_release(&b);
	profile_release(&even);
	profile_release(&uneven);
}

/* What is written is read as the same. */
static void written_and_read(void **state)
{
	(void)state;
	const struct plan_options o = options();
	struct profile p, again;
	struct plan a, b;
	struct buf text = BUF_INIT;
	struct err e = { 0 };
	make_profile(&p, "[" FIRST ", " LAST ", " FIRST ", " EVEN "]", DEVICES);
	profile_write(&p, &text);
	if (profile_read_text(&again, text.p, text.n, "again", &e) < 0)
		fail_msg("%s", e.msg);
	for (int i = 0; i < LAYERS * EXPERTS; i++)
		assert_true(fabs(p.routing[i] - again.routing[i]) < 1e-5);
	find_best(&p, &a);
	buf_release(&text);
	plan_to_json(&p, &a, &text);
	if (plan_read_text(&p, &o, text.p, text.n, "a plan", &b, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(a.stages == b.stages && b.stage[0].deal &&
		    a.stage[0].homes == b.stage[0].homes);
	assert_memory_equal(a.stage[0].deal, b.stage[0].deal, LAYERS * EXPERTS);
	plan_release(&a);
	plan_release(&b);
	profile_release(&p);
	profile_release(&again);
	buf_release(&text);
}

/* 'Experts of layers ... on ...: ... times the speed of the fastest pipeline'. */
static void explained(void **state)
{
	(void)state;
	const struct plan_options o = options();
	struct profile p;
	struct plan plan;
	struct plan_rival rival;
	struct buf text = BUF_INIT;
	struct err e = { 0 };
	make_profile(&p, NULL, DEVICES);
	find_best(&p, &plan);
	if (plan_second_best(&p, &o, &plan, &rival, &e) < 0)
		fail_msg("%s", e.msg);
	plan_explain(&p, &o, &plan, NULL, &rival, &text);
	const char *at = strstr(text.p, "Experts of layers ");
	assert_non_null(at);
	printf("%.*s\n", (int)strcspn(at, "\n"), at);
	assert_non_null(strstr(at, "attention on new: "));
	assert_non_null(strstr(at, " times the speed of the fastest pipeline"));
	buf_release(&text);
	plan_release(&plan);
	profile_release(&p);
}

/* Layers whose experts all stay at home are not among those that are named. */
static void of_some_layers(void **state)
{
	(void)state;
	static const char text[] =
		"{\"planner\": \"manual\", \"schedule\": \"zebra\", \"stages\": [{\"layers\": [0, "
		"4], "
		"\"homes\": 1, \"experts\": [[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0], "
		"[1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2]], \"devices\": [{\"id\": "
		"\"new\", \"share\": 1}, {\"id\": \"old1\", \"share\": 0}, {\"id\": \"old2\", "
		"\"share\": 0}]}]}";
	const struct plan_options o = options();
	struct profile p;
	struct plan plan;
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	make_profile(&p, NULL, DEVICES);
	if (plan_read_text(&p, &o, text, strlen(text), "a plan", &plan, &e) < 0 ||
	    plan_simulate(&p, &o, &plan, &e) < 0)
		fail_msg("%s", e.msg);
	const struct plan_rival rival = { .ms = NAN, .pipeline_ms = 1.9 * plan.simulated_ms };
	plan_explain(&p, &o, &plan, NULL, &rival, &b);
	assert_non_null(strstr(b.p, "Experts of layers 2 to 3 on old1 (4 of 8), old2 (4 of 8); "
				    "attention on new: 1.90 times the speed of the fastest "
				    "pipeline"));
	buf_release(&b);
	plan_release(&plan);
	profile_release(&p);
}

/* Two that are fast at attention and two that are not: a stage each. */
static void of_two_stages(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	make_profile(&p, NULL,
		     DEVICE("new1", "20", "40", "10", "20") ", " DEVICE(
			     "new2", "20", "40", "10",
			     "20") ", " DEVICE("old1", "114", "228", "14",
					       "28") ", " DEVICE("old2", "114", "228", "14", "28"));
	find_best(&p, &plan);
	printf("%d stages, %.1f ms\n", plan.stages, plan.simulated_ms);
	assert_int_equal(plan.stages, 2);
	for (int k = 0; k < 2; k++) {
		assert_non_null(plan.stage[k].deal);
		assert_int_equal(plan.stage[k].members, 2);
		assert_true(plan.stage[k].member[0].device < 2);
		assert_true(plan.stage[k].member[1].device >= 2);
	}
	plan_release(&plan);
	profile_release(&p);
}

/* A device that cannot hold one expert of each layer, and one that cannot hold all of its own. */
static void too_small(void **state)
{
	(void)state;
	static const char text[] =
		"{\"planner\": \"manual\", \"schedule\": \"zebra\", \"stages\": [{\"layers\": [0, "
		"4], "
		"\"homes\": 1, \"experts\": [1, 1, 1, 1, 2, 2, 2, 2], \"devices\": [{\"id\": "
		"\"new\", \"share\": 1}, {\"id\": \"old1\", \"share\": 0}, {\"id\": \"old2\", "
		"\"share\": 0}]}]}";
	static const struct {
		double gib;
		const char *says;
	} bad[] = {
		{ 0.3, "device 'old1' is too small for one expert of each of its 4 layers" },
		{ 1.5, "device 'old1' needs " },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		const struct plan_options o = options();
		struct profile p;
		struct plan plan;
		struct err e = { 0 };
		make_profile(&p, NULL, DEVICES);
		p.device[1].memory_gib = bad[i].gib;
		if (plan_read_text(&p, &o, text, strlen(text), "a plan", &plan, &e) < 0 ||
		    plan_simulate(&p, &o, &plan, &e) < 0)
			fail_msg("%s", e.msg);
		assert_false(plan.fits);
		assert_true(plan_experts_over(&p, &plan, &e) < 0);
		printf("%s\n", e.msg);
		if (!strstr(e.msg, bad[i].says))
			fail_msg("'%s' has not '%s'", e.msg, bad[i].says);
		plan_release(&plan);
		profile_release(&p);
	}
}

/* What the planner makes of the times that HeterMoE (arXiv 2504.03871) publishes, its figure 6 and
 * table 3: how often as fast as the plan without overlap (DistEP), or with all experts on the old
 * cards. `paper`: of its own plan with experts on both, from how busy both kinds are in it. Times
 * are derived as in test_sched_experts.c; the six cards of a kind count as one. */
struct published {
	const char *what;
	int layers, experts, batch;
	double attention, expert, link; /* ms of a layer and microbatch, forward */
	bool over_none;                 /* else over all experts on the old cards */
	double paper;
};

static void make_published(const struct published *v, struct profile *p)
{
	static const char *const id[] = { "new", "old" };
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"mixture\", \"layers\": %d, \"hidden\": "
		 "64, "
		 "\"parameters_per_layer\": 1e8, \"parameters\": 9e8, \"experts\": %d, \"top_k\": "
		 "2, "
		 "\"expert_parameters\": 1e6}, \"sequence_len\": 128, \"dtype\": \"float32\", "
		 "\"global_batch\": %d, \"devices\": [",
		 v->layers, v->experts, v->batch);
	for (int i = 0; i < 2; i++) {
		/* attention is slow on the old ones; experts take 0.8 of their time on the new */
		const double x = v->expert * (i ? 1 : 0.8), all = v->attention * (i ? 8 : 1) + x;
		buf_addf(&b,
			 "%s{\"id\": \"%s\", \"kind\": \"card\", \"host\": \"%s\", "
			 "\"memory_gib\": 100, \"forward_ms\": {\"linear\": [%g, 0]}, "
			 "\"backward_ms\": {\"linear\": [%g, 0]}, "
			 "\"experts_forward_ms\": {\"linear\": [%g, 0]}, "
			 "\"experts_backward_ms\": {\"linear\": [%g, 0]}, "
			 "\"kept_gib\": {\"linear\": [0.01, 0]}}",
			 i ? ", " : "", id[i], id[i], all, 2 * all, x, 2 * x);
	}
	buf_addf(&b,
		 "], \"links\": [{\"hosts\": [\"new\", \"old\"], "
		 "\"bandwidth_gbytes_per_s\": 1000, \"latency_ms\": %g}]}",
		 v->link);
	if (profile_read_text(p, b.p, b.n, "a profile", &e) < 0)
		fail_msg("%s", e.msg);
	buf_release(&b);
}

static double all_away_ms(const struct profile *p)
{
	const struct plan_options o = options();
	struct buf b = BUF_INIT;
	struct plan plan;
	struct err e = { 0 };
	buf_addf(&b,
		 "{\"planner\": \"manual\", \"schedule\": \"gpipe\", \"stages\": [{\"layers\": [0, "
		 "%d], \"homes\": 1, \"experts\": [",
		 p->layers);
	for (int x = 0; x < p->experts; x++)
		buf_addf(&b, "%s1", x ? ", " : "");
	buf_addf(&b, "], \"devices\": [{\"id\": \"new\", \"share\": 1}, {\"id\": \"old\", "
		     "\"share\": 0}]}]}");
	if (plan_read_text(p, &o, b.p, b.n, "a plan", &plan, &e) < 0 ||
	    plan_simulate(p, &o, &plan, &e) < 0)
		fail_msg("%s", e.msg);
	const double ms = plan.simulated_ms;
	buf_release(&b);
	plan_release(&plan);
	return ms;
}

static void published_by_the_planner(void **state)
{
	(void)state;
	static const struct published all[] = {
		{ "figure 6b, over all experts on the old", 3, 6, 3, 30, 40, 0, false, 1.10 },
		{ "table 3, 8K, over none", 8, 24, 2, 32.5, 51.4, 8.0, true, 1.98 },
		{ "table 3, 16K, over none", 8, 24, 2, 40.5, 45.2, 7.1, true, 2.00 },
		{ "table 3, 8K, over all experts on the old", 8, 24, 2, 32.5, 51.4, 8.0, false,
		  1.98 / 1.71 },
		{ "table 3, 16K, over all experts on the old", 8, 24, 2, 40.5, 45.2, 7.1, false,
		  2.00 / 1.935 },
	};
	printf("  %-45s %6s %6s\n", "HeterMoE, arXiv 2504.03871", "paper", "best");
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		const struct published *v = &all[i];
		struct profile p;
		struct plan plan;
		make_published(v, &p);
		find_best(&p, &plan);
		const double none = 3.0 * v->layers * v->batch *
				    (v->attention + v->expert + 2 * v->link),
			     ours = (v->over_none ? none : all_away_ms(&p)) / plan.simulated_ms;
		printf("  %-45s %6.2f %6.2f  %+.1f %%\n", v->what, v->paper, ours,
		       100 * (ours / v->paper - 1));
		assert_non_null(plan.stage[0].deal);
		assert_true(ours > 0.9 * v->paper);
		plan_release(&plan);
		profile_release(&p);
	}
}

static void bad_routing(void **state)
{
	(void)state;
	static const struct {
		const char *routing, *says;
	} bad[] = {
		{ "[" EVEN "]", "'routing' must have a list for each of 4 layers" },
		{ "[" EVEN ", " EVEN ", [1, 2], []]", "'routing' of layer 2 must be 8 numbers" },
		{ "[" EVEN ", [1, 1, 1, 1, 1, 1, 1, -1], [], []]", "'routing' of layer 1 must be" },
		{ "[" EVEN ", [1, 1, 1, 1, 1, 1, 1, \"x\"], [], []]",
		  "'routing' of layer 1 must be" },
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct profile p;
		struct err e = { 0 };
		struct buf b = BUF_INIT;
		buf_addf(&b,
			 "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 4, \"hidden\": "
			 "64, \"parameters_per_layer\": 1e8, \"experts\": 8, \"top_k\": 2, "
			 "\"routing\": %s}, \"sequence_len\": 128, \"dtype\": \"float32\", "
			 "\"global_batch\": 8, \"devices\": [" DEVICES "], \"links\": []}",
			 bad[i].routing);
		assert_true(profile_read_text(&p, b.p, b.n, "bad", &e) < 0);
		if (!strstr(e.msg, bad[i].says))
			fail_msg("'%s' has not '%s'", e.msg, bad[i].says);
		buf_release(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dealt_by_load),
		cmocka_unit_test(routing_decides),
		cmocka_unit_test(written_and_read),
		cmocka_unit_test(explained),
		cmocka_unit_test(of_some_layers),
		cmocka_unit_test(of_two_stages),
		cmocka_unit_test(too_small),
		cmocka_unit_test(bad_routing),
		cmocka_unit_test(published_by_the_planner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
