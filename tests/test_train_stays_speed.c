/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_stays_speed.c - work moves while a job runs: a worker is held up for most of its time
 * (SIGSTOP and SIGCONT in turns). Layers, or shares of a group, go to the others, the message names
 * it, and the result is that of one process in which nothing happened. How much is gained, and how
 * soon: tests/test_plan_rebalance.c. */
#include "base/err.h"
#include "base/mem.h"
#include "support/long.h"
#include "support/site.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 3, LIMIT = 120 /* seconds */ };

/* ---- a worker that gets little of its time ---- */

struct throttle {
	pthread_t thread;
	pid_t pid;
	atomic_bool end;
};

/* Short turns: many fall into each step, so its time does not depend on how many did. */
static void *hold_up(void *arg)
{
	struct throttle *t = arg;
	while (!t->end) {
		kill(t->pid, SIGSTOP);
		usleep(12000);
		kill(t->pid, SIGCONT);
		usleep(900);
	}
	return NULL;
}

static void throttle(struct throttle *t, pid_t pid)
{
	t->pid = pid;
	t->end = false;
	assert_int_equal(pthread_create(&t->thread, NULL, hold_up, t), 0);
}

static void release(struct throttle *t)
{
	t->end = true;
	pthread_join(t->thread, NULL);
}

/* ---- a run ---- */

static void start_all(const struct site *s, struct process *w)
{
	for (int i = 0; i < WORKERS; i++) {
		char word[3] = { (char)('a' + i), 0 };
		w[i] = site_start(s, "worker", "--worker", word, "two.yaml", NULL);
	}
	for (int i = 0; i < WORKERS; i++)
		until(&w[i], "listens");
}

/* Where steps do not agree it takes 24 to decide, and what is left must pay for the move. */
#define STEPS "max_steps=200", "save_steps=0", "gradient_accumulation_steps=8"

static void must_say(const struct process *p, const char *what)
{
	for (int i = 0; i < LIMIT * 20; i++, usleep(50000)) {
		if (says(p, what))
			return;
		if (says(p, "adapter in") || says(p, "error"))
			break;
	}
	show_log(p);
	fail_msg("'%s' was not said", what);
}

/* Only for a worker that is very slow: other programs keep the machine busy too. */
#define AUTO STEPS, "reduce_order=exact", "snapshot_steps=50", "rebalance_gain=0.5"
static const char stages[] = "shard_plan=[{id: a, start: 0, end: 1}, {id: b, start: 1, end: 4}, "
			     "{id: c, start: 4, end: 6}]",
		  group[] = "shard_plan=[{id: [a, b, c], share: [1, 5, 2], start: 0, end: 6}]";

static void one_run(const struct site *s, const char *const *more, const char *said, bool moves)
{
	struct process w[WORKERS], p;
	struct throttle t;
	start_all(s, w);
	p = site_start(s, "train", "two.yaml", AUTO, "overwrite_output_dir=true", more[0], more[1],
		       more[2], NULL);
	until(&p, "10/200 ");
	throttle(&t, w[1].pid);
	if (said) {
		must_say(&p, said);
		release(&t);
		must_succeed(&p);
	} else {
		must_succeed(&p);
		release(&t);
		assert_false(says(&p, "times as long"));
	}
	if (getenv("HS_SHOW"))
		show_log(&p);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(finished(&w[i], LIMIT), 0);
	same_result(s, "one", "two", true);
	assert_int_equal(run_says(s, "two", "metrics.jsonl", "\"event\": \"moved\""), moves);
}

static void work_moves(void **state)
{
	static const struct {
		const char *more[3], *said;
	} run[] = {
		{ { "profile=auto", "rebalance=on", stages },
		  "times as long as the plan expects. Layer" },
		{ { "profile=auto", "rebalance=on", group },
		  "times as long as the plan expects. 'a' computes " },
		{ { stages }, "times as long as in its first steps" },
		/* in the long form */
		{ { "profile=auto", stages }, "(rebalance: on moves work)" },
		/* until the end */
		{ { "profile=auto", "rebalance=off", stages }, NULL },
	};
	struct site s;
	struct process p;
	(void)state;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", WORKERS, "");
	p = site_start(&s, "train", "one.yaml", STEPS, NULL);
	must_succeed(&p);
	for (size_t i = 0; i < ARRAY_LEN(run) - (test_is_long() ? 0 : 2); i++)
		one_run(&s, run[i].more, run[i].said, i < 2);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_moves),
	};
	const char *only = getenv("HS_ONLY");
	if (only)
		cmocka_set_test_filter(only);
	site_program(argv[0]);
	return cmocka_run_group_tests_name("train_stays_speed", tests, NULL, NULL);
}
