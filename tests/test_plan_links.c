/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_links.c - predictions over links, against times known in closed form: a link that is
 * slower in one direction, several flows on one cable, a link in memory beside one on a cable, what
 * a relay carries, the values that a sharded stage gathers; and cores that two devices share. */
#include "base/buf.h"
#include "base/err.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A message: one row of 64 tokens, 64 numbers of 2 bytes. */
#define MESSAGE 8192.0

static void close_to(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * (1e-3 + fabs(want))))
		fail_msg("got %.12g, expected %.12g", got, want);
}

/* Four layers of 1 + 2 ms on each device, nothing trained that would have to be added up. */
static void read_profile(struct profile *p, int batch, const char *devices, const char *links)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	buf_addf(&b,
		 "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 4, \"hidden\": 64, "
		 "\"parameters\": 400, \"parameters_per_layer\": 100, \"layer_gib\": 0.25, "
		 "\"layer_state_gib\": 0, \"embedding_gib\": 0, \"head_gib\": 0, "
		 "\"embedding_state_gib\": 0, \"head_state_gib\": 0}, \"sequence_len\": 64, "
		 "\"dtype\": \"float32\", \"global_batch\": %d, \"devices\": [",
		 batch);
	for (const char *d = devices; *d; d += 2) /* id, host */
		buf_addf(&b,
			 "%s{\"id\": \"%c\", \"kind\": \"k\", \"host\": \"%c\", \"memory_gib\": "
			 "100, \"forward_ms\": {\"linear\": [1, 0]}, \"backward_ms\": "
			 "{\"linear\": [2, 0]}}",
			 d == devices ? "" : ", ", d[0], d[1]);
	buf_addf(&b, "], \"links\": [%s]}", links);
	assert_true(buf_ok(&b, &e) >= 0);
	if (profile_read_text(p, b.p, b.n, "profile", &e) < 0)
		fail_msg("%s", e.msg);
	buf_release(&b);
}

static void read_plan(const struct profile *p, const char *schedule, const char *stages,
		      struct plan *plan)
{
	const struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	char text[2000];
	snprintf(text, sizeof text,
		 "{\"version\": 1, \"microbatch\": 1, \"schedule\": \"%s\", \"stages\": [%s]}",
		 schedule, stages);
	if (plan_read_text(p, &o, text, strlen(text), "plan", plan, &e) < 0)
		fail_msg("%s", e.msg);
}

#define STAGE(from, to, id)                                                                        \
	"{\"layers\": [" #from ", " #to "], \"devices\": [{\"id\": \"" id "\"}]}"
#define LINK(a, b, gb, ms, more)                                                                   \
	"{\"hosts\": [\"" a "\", \"" b "\"], \"bandwidth_gbytes_per_s\": " #gb                     \
	", \"latency_ms\": " #ms more "}"

/* A microbatch after the other: 12 ms of computing, a message there and a gradient back, each at
 * the rate and with the latency of its own direction. */
static void slower_in_one_direction(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	read_profile(&p, 3, "axby",
		     LINK("x", "y", 0.001, 0.5,
			  ", \"reverse_bandwidth_gbytes_per_s\": 0.0001, \"reverse_latency_ms\": "
			  "2"));
	const double there = 0.5 + MESSAGE / 1e6 * 1e3, back = 2 + MESSAGE / 1e5 * 1e3;
	read_plan(&p, "sequential", STAGE(0, 2, "a") ", " STAGE(2, 4, "b"), &plan);
	close_to(plan.simulated_ms, 3 * (12 + there + back));
	plan_release(&plan);
	/* the other way round activations take the slow direction: as long in sum */
	read_plan(&p, "sequential", STAGE(0, 2, "b") ", " STAGE(2, 4, "a"), &plan);
	close_to(plan.simulated_ms, 3 * (12 + there + back));
	plan_release(&plan);
	/* all activations first: what the slow direction carries is what counts */
	read_plan(&p, "gpipe", STAGE(0, 2, "a") ", " STAGE(2, 4, "b"), &plan);
	const double a = plan.simulated_ms;
	close_to(a, 2 + there + 3 * 8.192 - 8.192 + 2 + 4 + 3 * 81.92 + 2 + 4);
	plan_release(&plan);
	profile_release(&p);
}

/* The first stage sends a message to each of two machines through its one card: the second begins
 * when the first is under way, and both share the cable. Their gradients come back the same way. */
static void two_flows_on_one_cable(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	read_profile(&p, 2, "axbycz",
		     LINK("x", "y", 0.0001, 0, "") ", " LINK("x", "z", 0.0001, 0, "") ", " LINK(
			     "y", "z", 0.0001, 0, ""));
	const double t = MESSAGE / 1e5 * 1e3, f = 2, b = 4, w = f + b;
	read_plan(&p, "gpipe",
		  STAGE(0, 2, "a") ", {\"layers\": [2, 4], \"devices\": [{\"id\": \"b\", "
				   "\"share\": 1, \"state_share\": 1}, {\"id\": \"c\", "
				   "\"share\": 1, \"state_share\": 1}]}",
		  &plan);
	/* alone for f, then half the rate each until the first has arrived at 2 t; the second at
	 * 2 t + f; back likewise, from 2 t + w and 2 t + f + w; then the backward passes of a */
	close_to(plan.simulated_ms, 4 * t + w - f + b + b);
	plan_release(&plan);
	profile_release(&p);
}

/* The same with one of the two on the machine of the first stage, by its memory: no cable is
 * shared, and the far one alone decides. */
static void memory_beside_a_cable(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	read_profile(&p, 2, "axbxcz",
		     LINK("x", "x", 0.001, 0, "") ", " LINK("x", "z", 0.0001, 0, ""));
	const double t = MESSAGE / 1e5 * 1e3, f = 2, b = 4;
	read_plan(&p, "gpipe",
		  STAGE(0, 2, "a") ", {\"layers\": [2, 4], \"devices\": [{\"id\": \"b\", "
				   "\"share\": 1, \"state_share\": 1}, {\"id\": \"c\", "
				   "\"share\": 1, \"state_share\": 1}]}",
		  &plan);
	close_to(plan.simulated_ms, 2 * f + t + f + b + t + b);
	plan_release(&plan);
	profile_release(&p);
}

/* Two members store halves of four layers. Each gathers the other's half of a layer before its
 * forwards and before its backwards; what is computed meanwhile hides it. */
static void gathered_values(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	char text[600];
	read_profile(&p, 2, "axby", LINK("x", "y", 1, 0, ""));
	const double g = 0.125 * 1073741824.0 / 1e9 * 1e3; /* half of a layer at 1 GB/s */
	snprintf(text, sizeof text,
		 "{\"version\": 1, \"microbatch\": 1, \"chunks\": 4, \"schedule\": "
		 "\"breadth_first\", \"stages\": [{\"layers\": [0, 4], \"sharded\": true, "
		 "\"devices\": [{\"id\": \"a\", \"share\": 1, \"state_share\": 0.5}, {\"id\": "
		 "\"b\", \"share\": 1, \"state_share\": 0.5}]}]}");
	const struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	if (plan_read_text(&p, &o, text, strlen(text), "plan", &plan, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(plan.chunks, 4);
	/* the link is the slower: 4 layers forward, 3 of them again backward (the last one is
	 * still there), and the backward pass of the first layer behind its gather */
	print_message("gathers of %.1f ms: %.4f ms a step\n", g, plan.simulated_ms);
	assert_true(plan.simulated_ms >= 7 * g + 2 && plan.simulated_ms <= 7 * g + 12);
	plan_release(&plan);
	profile_release(&p);
}

/* Two pipelines whose halves do not reach each other: a machine between passes on what both send at
 * the same time, and its cable carries both. */
static void a_relay_carries_both(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	const char *const pairs = "{\"layers\": [0, 2], \"devices\": [{\"id\": \"a\", \"share\": "
				  "1}, {\"id\": \"b\", \"share\": 1}]}, {\"layers\": [2, 4], "
				  "\"devices\": [{\"id\": \"c\", \"share\": 1}, {\"id\": \"d\", "
				  "\"share\": 1}]}";
	const double t = MESSAGE / 1e5 * 1e3;
	read_profile(&p, 2, "axbyczdw", LINK("*", "*", 0.0001, 0, ""));
	read_plan(&p, "gpipe", pairs, &plan);
	close_to(plan.simulated_ms, 2 + t + 6 + t + 4);
	plan_release(&plan);
	profile_release(&p);
	read_profile(&p, 2, "axbyczdw",
		     LINK("x", "z", 0.0001, 0, ", \"relay\": \"r\"") ", " LINK(
			     "y", "w", 0.0001, 0, ", \"relay\": \"r\"") ", " LINK("*", "*", 0.0001,
										  0, ""));
	assert_int_equal(p.hosts, 5);
	read_plan(&p, "gpipe", pairs, &plan);
	close_to(plan.simulated_ms, 2 + 2 * t + 6 + 2 * t + 4);
	plan_release(&plan);
	/* written and read again */
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	struct profile again;
	profile_write(&p, &b);
	if (profile_read_text(&again, b.p, b.n, "again", &e) < 0)
		fail_msg("%s", e.msg);
	read_plan(&again, "gpipe", pairs, &plan);
	close_to(plan.simulated_ms, 2 + 2 * t + 6 + 2 * t + 4);
	plan_release(&plan);
	profile_release(&again);
	profile_release(&p);
	buf_release(&b);
}

/* A profile whose devices a and b compute on the same two cores, where they were measured at the
 * same time: twice as long as each alone. */
static void on_the_same_cores(struct profile *p, int batch, const char *a, const char *b)
{
	read_profile(p, batch, "axbx", LINK("x", "x", 1000, 0, ""));
	p->device[0].cores = a;
	p->device[1].cores = b;
	p->device[0].processors = p->device[1].processors = 2;
}

static void cores_that_two_devices_share(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	const char *const group =
		"{\"layers\": [0, 4], \"devices\": [{\"id\": \"a\", \"share\": 1}, "
		"{\"id\": \"b\", \"share\": 1}]}";
	const char *const two = STAGE(0, 2, "a") ", " STAGE(2, 4, "b");
	const double message = MESSAGE / 1e12 * 1e3;
	/* cores of their own, and the whole time as measured */
	on_the_same_cores(&p, 4, "0,1", "2-3");
	read_plan(&p, "sequential", two, &plan);
	close_to(plan.simulated_ms, 4 * (12 + 2 * message));
	plan_release(&plan);
	/* one after the other, so that none is in the other's way */
	p.device[1].cores = "0-1";
	read_plan(&p, "sequential", two, &plan);
	close_to(plan.simulated_ms, 4 * (6 + 2 * message));
	plan_release(&plan);
	/* both all the time: as measured */
	read_plan(&p, "1f1b", group, &plan);
	close_to(plan.simulated_ms, 2 * 12);
	plan_release(&plan);
	/* one alone */
	read_plan(&p, "1f1b", STAGE(0, 4, "b"), &plan);
	close_to(plan.simulated_ms, 4 * 6);
	plan_release(&plan);
	/* half of what each uses is the other's too: 1.5 threads a core when both compute */
	p.device[1].cores = "1-2";
	read_plan(&p, "1f1b", STAGE(0, 4, "b"), &plan);
	close_to(plan.simulated_ms, 4 * 12 / 1.5);
	plan_release(&plan);
	profile_release(&p);
}

static void lists_of_cores(void **state)
{
	(void)state;
	struct core_set set;
	assert_int_equal(profile_cores("0-3,8", &set), 5);
	assert_int_equal(set.bit[0], 0xf);
	assert_int_equal(set.bit[1], 1);
	assert_int_equal(profile_cores("7", NULL), 1);
	const char *const bad[] = { "",     "a",  "1-",  "3-2",
				    "1024", "-1", "1;2", "99999999999999999999" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (profile_cores(bad[i], NULL))
			fail_msg("'%s' was taken", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slower_in_one_direction),
		cmocka_unit_test(two_flows_on_one_cable),
		cmocka_unit_test(memory_beside_a_cable),
		cmocka_unit_test(gathered_values),
		cmocka_unit_test(a_relay_carries_both),
		cmocka_unit_test(cores_that_two_devices_share),
		cmocka_unit_test(lists_of_cores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
