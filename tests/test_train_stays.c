/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_stays.c - a job goes on when workers are killed: in a step, between the halves of a
 * step, while state is collected, while another loss is being made good; in pipelines, groups, and
 * groups that share the state of the optimizer. The adapter at the end and every line of the
 * metrics are those of one process in which nothing happened.
 *
 * HS_KILLS: how many kills; 6 unless said otherwise; TEST_LONG: 100. HS_SEED: of the moments. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "support/long.h"
#include "support/site.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STEPS "max_steps=60", "save_steps=20"
enum { WORKERS = 4, LIMIT = 90 /* seconds */ };

/* Where the layers are at first. */
static const char *const plan[] = {
	"shard_plan=[{id: a, start: 0, end: 2}, {id: b, start: 2, end: 3}, {id: c, start: 3, "
	"end: 5}, {id: d, start: 5, end: 6}]",
	"shard_plan=[{id: [a, b], start: 0, end: 3}, {id: [c, d], share: [2, 1], start: 3, end: "
	"6}]",
	"shard_plan=[{id: [a, b, c, d], share: [1, 2, 1, 1], start: 0, end: 6}]",
	"shard_plan=[{id: a, start: 0, end: 2}, {id: [b, c, d], start: 2, end: 6}]",
};

static void start_all(const struct site *s, struct process *w)
{
	for (int i = 0; i < WORKERS; i++) {
		char word[3] = { (char)('a' + i), 0 };
		w[i] = site_start(s, "worker", "--worker", word, "two.yaml", "peer_timeout=5",
				  NULL);
	}
	for (int i = 0; i < WORKERS; i++)
		until(&w[i], "listens");
}

/* Waits until the run's log says `what`, or it has ended. */
static bool waits_for(const struct process *p, const char *what)
{
	for (int64_t end = clock_now() + (int64_t)LIMIT * 1000000000; clock_now() < end;
	     usleep(500)) {
		if (says(p, what))
			return true;
		if (says(p, "done") || says(p, "error"))
			return false;
	}
	return false;
}

/* Kills `kills` workers of one run, one after the other, at random moments. */
static int one_run(const struct site *s, const char *on, const char *more, int kills,
		   struct rng_key key, uint64_t *at)
{
	struct process w[WORKERS], p;
	bool alive[WORKERS] = { true, true, true, true };
	int killed = 0;
	start_all(s, w);
	p = site_start(s, "train", "two.yaml", on, STEPS, "peer_timeout=5", "join_timeout=30",
		       "overwrite_output_dir=true", more, NULL);
	waits_for(&p, "step ");
	for (int k = 0; k < kills; k++) {
		int victim = (int)rng_below(key, (*at)++, WORKERS);
		while (!alive[victim])
			victim = (victim + 1) % WORKERS;
		/* now and then while the loss before is being made good */
		usleep((useconds_t)(1e6 * rng_uniform(key, (*at)++, 0, k % 2 ? 0.15f : 0.5f)));
		if (says(&p, "adapter in"))
			break;
		kill(w[victim].pid, SIGKILL);
		finished(&w[victim], PATIENCE);
		alive[victim] = false;
		killed++;
	}
	if (finished(&p, LIMIT) != 0) {
		show_log(&p);
		for (int i = 0; i < WORKERS; i++)
			show_log(&w[i]);
		fail_msg("the job did not go on");
	}
	for (int i = 0; i < WORKERS; i++)
		if (alive[i])
			assert_int_equal(finished(&w[i], LIMIT), 0);
	no_torn_checkpoint(s, "two");
	same_result(s, "one", "two", true);
	if (getenv("HS_SHOW"))
		show_log(&p);
	return killed && says(&p, "is gone") ? killed : 0;
}

static void killed_again_and_again(void **state)
{
	const char *seed = getenv("HS_SEED"), *env = getenv("HS_KILLS");
	struct rng_key key = rng_key(seed ? strtoull(seed, NULL, 10) : 1);
	const int most = env ? (int)strtol(env, NULL, 10) : test_is_long() ? 100 : 6;
	uint64_t at = 0;
	struct site s;
	int kills = 0, runs = 0;
	(void)state;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", WORKERS, "");
	struct process p = site_start(&s, "train", "one.yaml", STEPS, NULL);
	must_succeed(&p);
	for (; kills < most && runs < 10 + 2 * most; runs++)
		kills += one_run(&s, plan[(size_t)runs % ARRAY_LEN(plan)],
				 runs % 3 ? "snapshot_steps=3" : "snapshot_steps=1", 1 + runs % 3,
				 key, &at);
	printf("%d workers killed in %d runs; every result is that of one process\n", kills, runs);
	assert_true(kills >= most);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_again_and_again),
	};
	site_program(argv[0]);
	return cmocka_run_group_tests_name("train_stays", tests, NULL, NULL);
}
