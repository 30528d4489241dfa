/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_remaining.c - the plan for who is left where two workers do not reach each other: they
 * are not put beside each other, and where that cannot be, one of them is left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "job/job.h"
#include "support/tiny.h"
#include "train/remaining.h"

static struct err err;
#define MUST(what)                                                                                 \
	do {                                                                                       \
		if ((what) < 0)                                                                    \
			fail_msg("line %d: %s: %s", __LINE__, #what, err.msg);                     \
	} while (0)

enum { N = 3 };

/* "a b c": the stages, members of one joined by a comma, with their first layers. */
static void text_of(const struct job_plan *p, char *out, size_t cap)
{
	size_t n = 0;
	for (int k = 0; k < p->plan.stages; k++) {
		const struct plan_stage *s = &p->plan.stage[k];
		for (int i = 0; i < s->members; i++)
			n += (size_t)snprintf(out + n, cap - n, "%s%s",
					      i   ? ","
					      : k ? " "
						  : "",
					      p->profile.device[s->member[i].device].id);
		n += (size_t)snprintf(out + n, cap - n, "%d", p->plan.first[k + 1]);
	}
}

/* The plan where the pairs ("ab bc") do not reach each other. */
static void plan_of(const char *shards, const char *profile, const char *pairs, char *out,
		    size_t cap)
{
	struct tiny t;
	struct job job;
	struct job_plan p = { 0 };
	char plan[200];
	const struct seat_spec seat[N] = { { .id = "a", .device = "cpu" },
					   { .id = "b", .device = "cpu" },
					   { .id = "c", .device = "cpu" } };
	const bool here[N] = { true, true, true };
	bool apart[N * N] = { false };
	for (const char *v = pairs; v[0]; v += 2 + (v[2] == ' '))
		apart[(v[0] - 'a') * N + (v[1] - 'a')] = true;
	tiny_make(&t, 6, 24);
	snprintf(plan, sizeof plan, "shard_plan=%s", shards ? shards : "[]");
	const char *const more[] = {
		"workers=[{id: a, ip: 127.0.0.2, port: 9001}, {id: b, ip: 127.0.0.3, port: 9002}, "
		"{id: c, ip: 127.0.0.4, port: 9003}]",
		"coordinator={ip: 127.0.0.1, device: none}", "compute_dtype=float32", plan, NULL
	};
	struct config *c = tiny_config(&t, "run", more);
	MUST(job_open(c, DT_F32, NULL, &job, &err));
	static const char *const id[N] = { "a", "b", "c" };
	const struct beside beside = { id, apart, N };
	const struct remaining r = { .job = &job,
				     .seat = seat,
				     .here = here,
				     .n = N,
				     .profile = profile,
				     .beside = pairs[0] ? &beside : NULL };
	MUST(remaining_plan(&r, &p, &err));
	text_of(&p, out, cap);
	job_plan_release(&p);
	job_close(&job);
	config_free(c);
	tiny_remove(&t);
}

static void is(const char *shards, const char *pairs, const char *want)
{
	char got[200];
	plan_of(shards, NULL, pairs, got, sizeof got);
	if (strcmp(got, want))
		fail_msg("%s without %s: '%s', not '%s'", shards ? shards : "even", pairs, got,
			 want);
}

static void not_beside_each_other(void **state)
{
	static const char line[] =
		"[{id: a, start: 0, end: 1}, {id: b, start: 1, end: 3}, {id: c, start: 3, end: 6}]";
	static const char group[] = "[{id: [a, b], start: 0, end: 3}, {id: c, start: 3, end: 6}]";
	(void)state;
	is(line, "", "a1 b3 c6");
	is(line, "ac", "a1 b3 c6");
	/* the entries change places, the ranges stay */
	is(line, "ab", "a1 c3 b6");
	is(line, "bc", "b1 a3 c6");
	/* nobody can be between them */
	is(line, "ab bc", "a2 c6");
	is(line, "ab ac bc", "c6");
	/* nor in one group */
	is(group, "", "a,b3 c6");
	is(group, "ab", "b3 c6");
	/* without a plan of the user's */
	is(NULL, "", "a2 b4 c6");
	is(NULL, "ab bc", "a3 c6");
}

/* Each holds at most two layers and a bit, so all are needed, in some order. */
static void a_planner_avoids_it(void **state)
{
	struct buf b = BUF_INIT;
	char got[200];
	(void)state;
	buf_adds(&b, "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 6, \"hidden\": 64, "
		     "\"parameters\": 1e9, \"parameters_per_layer\": 1e6, \"layer_gib\": 1, "
		     "\"embedding_gib\": 0.01, \"head_gib\": 0.01, \"layer_state_gib\": 0.01, "
		     "\"embedding_state_gib\": 0, \"head_state_gib\": 0}, \"sequence_len\": 24, "
		     "\"dtype\": \"float32\", \"global_batch\": 2, \"devices\": [");
	for (int i = 0; i < N; i++)
		buf_addf(&b,
			 "%s{\"id\": \"%c\", \"kind\": \"k\", \"host\": \"h%d\", \"memory_gib\": "
			 "2.6, \"on_host\": true, \"kept_gib\": {\"linear\": [0, 0]}, "
			 "\"forward_ms\": {\"linear\": [1, 0]}, \"backward_ms\": {\"linear\": [2, "
			 "0]}}",
			 i ? ", " : "", 'a' + i, i);
	buf_adds(&b, "], \"links\": [{\"hosts\": [\"*\", \"*\"], \"bandwidth_gbytes_per_s\": 1, "
		     "\"latency_ms\": 0.1}]}");
	plan_of(NULL, b.p, "", got, sizeof got);
	assert_int_equal(strlen(got), 8); /* "a2 b4 c6" or another order */
	static const char *const pair[] = { "ab", "bc", "ac" };
	for (int i = 0; i < 3; i++) {
		plan_of(NULL, b.p, pair[i], got, sizeof got);
		const char middle = "cab"[i];
		if (strlen(got) != 8 || got[3] != middle)
			fail_msg("without %s: '%s'", pair[i], got);
	}
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_beside_each_other),
		cmocka_unit_test(a_planner_avoids_it),
	};
	return cmocka_run_group_tests_name("train_remaining", tests, NULL, NULL);
}
