/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_stays.c - a job goes on when workers are killed: in a step, between the halves of a
 * step, while state is collected, while another loss is being made good; in pipelines, groups, and
 * groups that share the state of the optimizer; and when they come back. The adapter at the end and
 * every line of the metrics are those of one process in which nothing happened.
 *
 * HS_KILLS: how many kills; 6 unless said otherwise; TEST_LONG: 100. HS_SEED: of the moments. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "support/crew_site.h"
#include "support/long.h"

#include <dirent.h>
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

/* A site with the configurations "one" and "two" (of four workers), and the result of "one". */
static void make(struct site *s, int workers, const char *extra, const char *steps,
		 const char *save)
{
	site_make(s);
	site_configuration(s, "one", 0, extra);
	site_configuration(s, "two", workers, extra);
	struct process p = site_start(s, "train", "one.yaml", steps, save, NULL);
	must_succeed(&p);
}

/* The run and its workers end well, and the result is that of "one". */
static void ends_alike(const struct site *s, const struct process *p, const struct process *w,
		       int first)
{
	must_succeed(p);
	if (w)
		workers_end(w, first);
	if (getenv("HS_SHOW"))
		show_log(p);
	same_result(s, "one", "two", true);
}

/* The worker of this name that a coordinator has started. */
static pid_t child_of(pid_t of, char worker)
{
	char path[64], text[4096];
	DIR *d = opendir("/proc");
	pid_t found = 0;
	for (struct dirent *f; d && !found && (f = readdir(d));) {
		pid_t pid = (pid_t)strtol(f->d_name, NULL, 10);
		int parent = 0;
		const char *at;
		snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
		char *stat = pid > 0 ? site_text(path) : NULL;
		if (stat && (at = strrchr(stat, ')')) && sscanf(at + 1, " %*c %d", &parent) == 1 &&
		    parent == of) {
			snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
			FILE *in = fopen(path, "r");
			size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
			for (size_t i = 0; i < n; i++)
				text[i] = text[i] ? text[i] : ' ';
			text[n] = 0;
			if (in)
				fclose(in);
			at = strstr(text, "--worker ");
			found = at && at[9] == worker ? pid : 0;
		}
		mem_free(stat);
	}
	if (d)
		closedir(d);
	assert_true(found > 0);
	return found;
}

/* Kills `kills` workers of one run, one after the other, at random moments. */
static int one_run(const struct site *s, const char *on, const char *more, int kills,
		   struct rng_key key, uint64_t *at)
{
	struct process w[WORKERS], p;
	bool alive[WORKERS] = { true, true, true, true };
	int killed = 0;
	start_workers(s, w);
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
		kill_now(&w[victim]);
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

static const char *const more[] = { "snapshot_steps=3", "shard=optimizer", "snapshot_steps=1",
				    "snapshot_to=disk", "snapshot_to=off" };

static void killed_again_and_again(void **state)
{
	const char *seed = getenv("HS_SEED"), *env = getenv("HS_KILLS");
	struct rng_key key = rng_key(seed ? strtoull(seed, NULL, 10) : 1);
	const int most = env ? (int)strtol(env, NULL, 10) : test_is_long() ? 100 : 6;
	uint64_t at = 0;
	struct site s;
	int kills = 0, runs = 0;
	(void)state;
	make(&s, WORKERS, "", STEPS);
	for (; kills < most && runs < 10 + 2 * most; runs++)
		kills += one_run(&s, crew_plan[(size_t)runs % ARRAY_LEN(crew_plan)],
				 more[(size_t)runs % ARRAY_LEN(more)], 1 + runs % 3, key, &at);
	printf("%d workers killed in %d runs; every result is that of one process\n", kills, runs);
	assert_true(kills >= most);
	tiny_remove(&s.t);
}

/* Workers are killed and started again, one after the other: each gets its layers back, between two
 * steps, and nothing is computed twice for it. */
static void come_back(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "", "max_steps=120", "save_steps=0");
	start_workers(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[1], "max_steps=120", "save_steps=0",
		       "peer_timeout=5", "join_timeout=30", "snapshot_steps=5", "trace=true", NULL);
	waits_for(&p, "step ");
	static const char *const said[] = { "'b' is back", "'d' is back" };
	for (int i = 0; i < 2; i++) {
		const int victim = i ? 3 : 1;
		kill_now(&w[victim]);
		assert_true(waits_for(&p, i ? "'d' is gone" : "'b' is gone"));
		w[victim] = start_worker(&s, victim);
		says_or_fails(&p, &w[victim], said[i]);
	}
	ends_alike(&s, &p, w, 0);
	assert_true(run_says(&s, "two", "metrics.jsonl", "\"lost\", \"text\": \"'b' is gone ("));
	assert_true(run_says(&s, "two", "metrics.jsonl", "\"joined\", \"text\": \"'b' is back."));
	assert_true(
		run_says(&s, "two", "trace.json", "\"ph\":\"i\",\"s\":\"g\",\"name\":\"lost\""));
	assert_true(run_says(&s, "two", "trace.json", "\"text\":\"'d' is back."));
	tiny_remove(&s.t);
}

/* A worker that has joined dies before it has its layers: the others begin without it. */
static void before_the_first_step(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "", STEPS);
	start_workers(&s, w);
	kill(w[3].pid, SIGSTOP); /* the job waits for it, until the other one is held up too */
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "peer_timeout=20", NULL);
	until(&w[2], "has joined");
	kill(w[2].pid, SIGSTOP);
	kill(w[3].pid, SIGCONT);
	says_or_fails(&p, &w[3], "'d' (boxd, 127.0.0.5");
	kill_now(&w[2]);
	must_succeed(&p);
	assert_true(says(&p, "'c' is gone") && says(&p, "Going on after step 0"));
	for (int i = 0; i < WORKERS; i++)
		if (i != 2)
			assert_int_equal(finished(&w[i], LIMIT), 0);
	same_result(&s, "one", "two", true);
	tiny_remove(&s.t);
}

/* One that is stopped says nothing: it is done without. When it goes on it finds its link closed,
 * waits for the coordinator, and gets its layers back. */
static void stopped_and_continued(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "coordinator_timeout: 60\n", "max_steps=120", "save_steps=0");
	start_workers(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], "max_steps=120", "save_steps=0",
		       "peer_timeout=2", "snapshot_steps=2", NULL);
	waits_for(&p, "step ");
	kill(w[1].pid, SIGSTOP);
	assert_true(waits_for(&p, "'b' is gone"));
	kill(w[1].pid, SIGCONT);
	says_or_fails(&p, &w[1], "'b' is back");
	ends_alike(&s, &p, w, 0);
	tiny_remove(&s.t);
}

/* Devices and links were measured, and a planner chose: it chooses again for who is left, and for
 * all when it is worth it. */
static void planned_again(void **state)
{
	struct site s;
	struct process p;
	(void)state;
	make(&s, 3, "", STEPS);
	p = site_start(&s, "train", "two.yaml", "profile=auto", STEPS, "snapshot_steps=2",
		       "reduce_order=exact", "rebalance_gain=0", "planner=even", NULL);
	waits_for(&p, "/60 ");
	kill(child_of(p.pid, 'b'), SIGKILL);
	assert_true(waits_for(&p, "'b' is gone"));
	assert_true(waits_for(&p, "'b' is back"));
	ends_alike(&s, &p, NULL, 0);
	tiny_remove(&s.t);
}

/* Too few are left: the job waits until one is back. */
static void waits_for_one(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "", STEPS);
	start_workers(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "peer_timeout=5",
		       "min_workers=4", "snapshot_steps=2", NULL);
	waits_for(&p, "step ");
	kill_now(&w[2]);
	assert_true(waits_for(&p, "for a worker to come back"));
	w[2] = start_worker(&s, 2);
	must_succeed(&p);
	assert_true(says(&p, "'c' is back"));
	workers_end(w, 0);
	same_result(&s, "one", "two", true);
	/* nobody comes: saved, and status 1 */
	start_workers(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "peer_timeout=5",
		       "min_workers=4", "snapshot_steps=2", "rejoin_timeout=1",
		       "overwrite_output_dir=true", NULL);
	waits_for(&p, "step 10/");
	kill_now(&w[2]);
	must_fail(&p, 1, "3 workers are left, min_workers is 4");
	for (int i = 0; i < WORKERS; i++)
		if (i != 2)
			assert_int_equal(finished(&w[i], LIMIT), 1);
	assert_true(has_checkpoint(&s, "two"));
	no_torn_checkpoint(&s, "two");
	p = site_start(&s, "train", "two.yaml", STEPS, "shard_plan=[{id: local, start: 0, end: 6}]",
		       "coordinator={ip: 127.0.0.1, device: cpu}", "workers=[]",
		       "resume_from_checkpoint=latest", NULL);
	ends_alike(&s, &p, NULL, 0);
	tiny_remove(&s.t);
}

/* The members of a group hold pieces of all parameters: what one of them held comes from the
 * coordinator's file and the snapshot. */
static void pieces_of_parameters(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "", STEPS);
	start_workers(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[2], STEPS, "shard=parameters",
		       "peer_timeout=5", "snapshot_steps=4", NULL);
	waits_for(&p, "step  7/60 ");
	kill_now(&w[2]);
	says_or_fails(&p, NULL, "'c' is gone");
	w[2] = start_worker(&s, 2);
	ends_alike(&s, &p, w, 0);
	tiny_remove(&s.t);
}

/* All parameters are trained: how often there is a snapshot follows from what one costs, and is
 * said; in memory, and as checkpoints. */
static void the_interval_is_said(void **state)
{
	static const char *const to[] = { "snapshot_to=memory", "snapshot_to=disk" };
	struct site s;
	struct process p;
	(void)state;
	site_make(&s);
	site_configuration(&s, "two", 2, "adapter: none\n");
	for (int i = 0; i < 2; i++) {
		p = site_start(&s, "train", "two.yaml", "max_steps=4", "save_steps=2", to[i],
			       "overwrite_output_dir=true", NULL);
		must_succeed(&p);
		assert_true(says(&p, "a snapshot of the training state (") &&
			    says(&p, "there is one about every"));
	}
	tiny_remove(&s.t);
}

/* The coordinator started the worker: it starts it again. */
static void started_again(void **state)
{
	struct site s;
	struct process p;
	(void)state;
	make(&s, WORKERS, "", "max_steps=100", "save_steps=0");
	p = site_start(&s, "train", "two.yaml", crew_plan[3], "max_steps=100", "save_steps=0",
		       "snapshot_steps=3", NULL);
	waits_for(&p, "step ");
	kill(child_of(p.pid, 'c'), SIGKILL);
	assert_true(waits_for(&p, "'c' is gone"));
	assert_true(waits_for(&p, "'c' is back"));
	ends_alike(&s, &p, NULL, 0);
	tiny_remove(&s.t);
}

/* One that is spare holds nothing until another is lost, and then what that one held. Answers to
 * sample_prompts that were given in steps that are computed again are there once. */
static void a_spare_worker(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	char text[1200];
	size_t n = 0;
	(void)state;
	make(&s, WORKERS, "sample_prompts: ['a, b']\nsample_steps: 5\nsample_max_tokens: 4\n",
	     STEPS);
	start_workers(&s, w);
	for (int i = 0; i < WORKERS; i++)
		n += (size_t)snprintf(text + n, sizeof text - n,
				      "%s{id: %c, ip: 127.0.0.%d, port: %d, public_key: '%s'%s}",
				      i ? ", " : "workers=[", 'a' + i, i + 2, s.port + 1 + i,
				      s.key.pub, i == 3 ? ", spare: true}]" : "");
	text[n - (n > 2 && text[n - 2] == ']')] = 0;
	p = site_start(&s, "train", "two.yaml", text,
		       "shard_plan=[{id: a, start: 0, end: 2}, {id: [b, c], start: 2, end: 6}]",
		       STEPS, "peer_timeout=5", "snapshot_steps=10", NULL);
	waits_for(&p, "step  7/60 ");
	kill_now(&w[0]);
	ends_alike(&s, &p, w, 1);
	assert_true(says(&p, "Layers 0-1 go to 'd'"));
	assert_true(says(&p, "steps 1 to "));
	same_samples(&s, "one", "two");
	tiny_remove(&s.t);
}

/* The coordinator is killed: its workers wait, and the same command goes on; where there is no step
 * yet the run begins again. Another configuration is refused. (More in test_train_again.c.) */
static void the_same_command(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, WORKERS, "coordinator_timeout: 60\n", STEPS);
	start_workers(&s, w);
	static const char *const at[] = { "before step 1:", "step 45/" };
	for (int i = 0; i < 2; i++) {
		p = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, "peer_timeout=5",
			       NULL);
		says_or_fails(&p, NULL, at[i]);
		assert_true(i == 0 || says(&p, "it begins again"));
		kill_now(&p);
	}
	/* another configuration is refused */
	p = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, "learning_rate=0.01", NULL);
	must_fail(&p, 2, "learning_rate");
	p = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, "min_workers=5", NULL);
	must_fail(&p, 2, "min_workers is 5, but 4 can take part");
	p = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, "auto_resume=false", NULL);
	must_fail(&p, 2, "already holds a run");
	p = site_start(&s, "train", "two.yaml", crew_plan[2], STEPS, "peer_timeout=5", NULL);
	must_succeed(&p);
	assert_true(says(&p, "going on from it, without a checkpoint"));
	workers_end(w, 0);
	same_result(&s, "one", "two", true);
	/* done is done */
	p = site_start(&s, "train", "two.yaml", crew_plan[2], STEPS, NULL);
	must_succeed(&p);
	assert_true(says(&p, "nothing to do"));
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_again_and_again), cmocka_unit_test(come_back),
		cmocka_unit_test(before_the_first_step),  cmocka_unit_test(pieces_of_parameters),
		cmocka_unit_test(stopped_and_continued),  cmocka_unit_test(waits_for_one),
		cmocka_unit_test(planned_again),          cmocka_unit_test(the_same_command),
		cmocka_unit_test(a_spare_worker),         cmocka_unit_test(started_again),
		cmocka_unit_test(the_interval_is_said),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	site_program(argv[0]);
	return cmocka_run_group_tests_name("train_stays", tests, NULL, NULL);
}
