/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_again.c - the coordinator is killed and started again with the same command: it goes
 * on from the state that its workers have kept, without a checkpoint, with another plan too, and
 * the result is that of one process. Where a part of the state is lost the newest checkpoint is
 * taken; two coordinators never drive one worker.
 *
 * HS_KILLS: how many kills; TEST_LONG: 60. HS_SEED: of the moments. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/crew_site.h"
#include "support/long.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Validation, samples and early checkpoints: what follows a step is done once, whenever the
 * coordinator is killed. */
#define EXTRA                                                                                      \
	"coordinator_timeout: 60\neval_steps: 3\nsample_prompts: ['a, b']\n"                       \
	"sample_steps: 7\nsample_max_tokens: 3\nreduce_order: exact\n"
#define STEPS "max_steps=60", "val_set_size=2", "save_steps=30", "peer_timeout=5", "join_timeout=30"

static const char *const more[] = { "shard=none", "shard=optimizer", "snapshot_to=disk" };

static struct process train(const struct site *s, int k)
{
	return site_start(s, "train", "two.yaml", crew_plan[k % 4], STEPS, more[k % 3], NULL);
}

static void make(struct site *s, struct process *w)
{
	site_make(s);
	site_configuration(s, "one", 0, EXTRA);
	site_configuration(s, "two", WORKERS, EXTRA);
	struct process p = site_start(s, "train", "one.yaml", STEPS, NULL);
	must_succeed(&p);
	start_workers(s, w);
}

static void ends_alike(const struct site *s, const struct process *p, const struct process *w)
{
	must_succeed(p);
	workers_end(w, 0);
	same_result(s, "one", "two", true);
	same_samples(s, "one", "two");
	no_torn_checkpoint(s, "two");
}

/* One worker is stopped now and then when the coordinator dies, so that STEP may not reach all. */
static void killed_again_and_again(void **state)
{
	const char *seed = getenv("HS_SEED"), *env = getenv("HS_KILLS");
	const struct rng_key key = rng_key(seed ? strtoull(seed, NULL, 10) : 1);
	const int most = env ? (int)strtol(env, NULL, 10) : test_is_long() ? 60 : 6;
	uint64_t at = 0;
	struct site s;
	struct process w[WORKERS], p;
	int kept = 0, kills = 0;
	(void)state;
	make(&s, w);
	p = train(&s, 0);
	for (int k = 1; kills < most && waits_for(&p, "step "); k++) {
		const int stopped = (int)rng_below(key, at++, WORKERS * 2);
		usleep((useconds_t)(1e6 * rng_uniform(key, at++, 0, 4.0f / (float)(most + 4))));
		if (stopped < WORKERS)
			kill(w[stopped].pid, SIGSTOP);
		usleep((useconds_t)(1e6 * rng_uniform(key, at++, 0, 0.02f)));
		kill_now(&p);
		if (stopped < WORKERS)
			kill(w[stopped].pid, SIGCONT);
		kills++;
		p = train(&s, k);
		if (!waits_for(&p, "resume ") && !says(&p, "begins again"))
			break;
		kept += says(&p, "without a checkpoint");
	}
	ends_alike(&s, &p, w);
	printf("%d coordinators killed, %d times the workers had kept a state\n", kills, kept);
	assert_true(kept > 0);
	tiny_remove(&s.t);
}

/* A worker is killed with it: another one of its group has the same; without one the newest
 * checkpoint is taken. */
static void with_a_worker(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, w);
	static const char *const said[] = { "without a checkpoint", "step-000030 (auto_resume)" };
	for (int i = 0; i < 2; i++) {
		p = site_start(&s, "train", "two.yaml", crew_plan[1 - i], STEPS, NULL);
		assert_true(waits_for(&p, i ? "step 45/" : "step 10/"));
		kill(p.pid, SIGKILL);
		kill(w[1].pid, SIGKILL);
		finished(&p, PATIENCE);
		finished(&w[1], PATIENCE);
		w[1] = start_worker(&s, 1);
		p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, NULL);
		if (!waits_for(&p, said[i])) {
			show_log(&p);
			fail_msg("not '%s'", said[i]);
		}
		if (i) {
			assert_true(says(&p, "what the workers have kept is not all of a state"));
			break;
		}
		kill_now(&p);
	}
	ends_alike(&s, &p, w);
	tiny_remove(&s.t);
}

/* A worker joins the new coordinator and dies before there is a plan. (make test-long) */
static void lost_before_the_plan(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	if (!test_is_long())
		return;
	make(&s, w);
	p = site_start(&s, "train", "two.yaml", crew_plan[2], STEPS, NULL);
	assert_true(waits_for(&p, "step 10/"));
	kill_now(&p);
	until(&w[2], "waiting up to");
	until(&w[3], "waiting up to");
	kill(w[3].pid, SIGSTOP); /* it is waited for */
	kill_now(&w[2]);
	w[2] = start_worker(&s, 2);
	p = site_start(&s, "train", "two.yaml", crew_plan[2], STEPS, NULL);
	until(&p, "waiting for worker 'd'"); /* for nobody else */
	kill_now(&w[2]);
	kill(w[3].pid, SIGCONT);
	if (!waits_for(&p, "'c' is gone")) {
		show_log(&p);
		fail_msg("not without it");
	}
	w[2] = start_worker(&s, 2);
	ends_alike(&s, &p, w);
	tiny_remove(&s.t);
}

/* The folder of a run, copied, with an older number of its coordinator: a worker that follows the
 * newer one refuses it, also when that one is gone. */
static void an_older_coordinator(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	char path[600], old[600];
	(void)state;
	make(&s, w);
	for (int i = 0; i < 2; i++) {
		p = train(&s, 0);
		assert_true(waits_for(&p, i ? "without a checkpoint" : "step 10/"));
		assert_true(waits_for(&p, "step "));
		kill_now(&p);
		snprintf(path, sizeof path, "%s/two/run.term", s.t.dir);
		snprintf(old, sizeof old, "%s/old.term", s.t.dir);
		if (i) {
			assert_int_equal(rename(old, path), 0);
			break;
		}
		char *text = site_text(path);
		site_put(&s, "old.term", text, 0600);
		mem_free(text);
	}
	p = train(&s, 0);
	must_fail(&p, 1, "it follows a later coordinator of this run (term 2");
	for (int i = 0; i < WORKERS; i++)
		kill_now(&w[i]);
	tiny_remove(&s.t);
}

/* What the workers have kept stays theirs until it is taken: after a profile, another
 * configuration, and a worker that does not join. From then on it is saved when the job ends before
 * its first step. */
static void fails_before_it_goes_on(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	(void)state;
	make(&s, w);
	p = train(&s, 0);
	says_or_fails(&p, NULL, "step 10/");
	kill_now(&p);
	p = site_start(&s, "profile", "two.yaml", NULL);
	must_succeed(&p);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "learning_rate=0.02", NULL);
	must_fail(&p, 2, "a run of another configuration");
	kill(w[2].pid, SIGSTOP);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "join_timeout=2", NULL);
	must_fail(&p, 1, "did not join within 2 s");
	kill(w[2].pid, SIGCONT);
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "reduce_order=fast", NULL);
	must_fail(&p, 2, "'reduce_order' is fast");
	assert_true(says(&p, "without a checkpoint"));
	assert_true(says(&p, "saved "));
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(finished(&w[i], LIMIT), 1);
	start_workers(&s, w);
	p = train(&s, 1);
	ends_alike(&s, &p, w);
	assert_true(says(&p, "(auto_resume)"));
	tiny_remove(&s.t);
}

/* A coordinator hangs, or is cut off, and its links do not end; it is started again elsewhere, with
 * a copy of its folder. The workers leave the old one at once: peer_timeout is 10 minutes. When it
 * goes on it is refused, and ends with one line. */
static void a_later_coordinator(void **state)
{
	struct site s;
	struct process w[WORKERS], p, q;
	char copy[1400], to[600];
	(void)state;
	site_make(&s);
	site_configuration(&s, "one", 0, EXTRA);
	site_configuration(&s, "two", WORKERS, EXTRA);
	p = site_start(&s, "train", "one.yaml", STEPS, NULL);
	must_succeed(&p);
	for (int i = 0; i < WORKERS; i++) {
		char word[3] = { (char)('a' + i), 0 };
		w[i] = site_start(&s, "worker", "--worker", word, "two.yaml", "peer_timeout=600",
				  NULL);
	}
	for (int i = 0; i < WORKERS; i++)
		until(&w[i], "listens");
	p = site_start(&s, "train", "two.yaml", crew_plan[0], STEPS, "rejoin_timeout=3", NULL);
	says_or_fails(&p, NULL, "step 10/");
	kill(p.pid, SIGSTOP);
	snprintf(copy, sizeof copy, "cp -r %s/two %s/three", s.t.dir, s.t.dir);
	snprintf(to, sizeof to, "output_dir=%s/three", s.t.dir);
	assert_int_equal(system(copy), 0);
	q = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, to, NULL);
	says_or_fails(&q, &w[0], "without a checkpoint");
	kill(p.pid, SIGCONT);
	must_fail(&p, 1, "cannot go on with the others");
	must_succeed(&q);
	workers_end(w, 0);
	same_result(&s, "one", "three", true);
	same_samples(&s, "one", "three");
	tiny_remove(&s.t);
}

/* The disk is full when the coordinator is started again: it waits for a little room, says that a
 * checkpoint has none, goes on, and saves when there is. */
static void a_full_disk(void **state)
{
	struct site s;
	struct process w[WORKERS], p;
	char disk[500], fill[600], to[600];
	static const char zeros[4096];
	(void)state;
	make(&s, w);
	snprintf(disk, sizeof disk, "%s/disk", s.t.dir);
	snprintf(fill, sizeof fill, "%s/fill", disk);
	snprintf(to, sizeof to, "output_dir=%s/run", disk);
	assert_int_equal(mkdir(disk, 0755), 0);
	const bool mounted = !mount("tmpfs", disk, "tmpfs", 0, "size=4m");
	for (int i = 0; i < 3; i++) {
		p = site_start(&s, "train", "two.yaml", crew_plan[1], STEPS, to, "snapshot_to=disk",
			       NULL);
		if (!mounted)
			break;
		if (i == 0)
			says_or_fails(&p, NULL, "step 10/");
		if (i == 1) {
			until(&p, "The run goes on when there is room");
			kill(p.pid, SIGINT);
			must_fail(&p, 1, "interrupted while waiting for room");
			continue;
		}
		if (i == 2)
			break;
		kill_now(&p);
		int fd = open(fill, O_WRONLY | O_CREAT, 0644);
		while (write(fd, zeros, sizeof zeros) > 0)
			continue;
		close(fd);
	}
	if (mounted) {
		struct stat st;
		until(&p, "The run goes on when there is room");
		assert_int_equal(stat(fill, &st), 0);
		assert_int_equal(truncate(fill, st.st_size - 4 * 4096), 0);
		says_or_fails(&p, NULL, "what the workers have kept is collected in memory");
		says_or_fails(&p, NULL, "the run goes on, and tries to save");
		says_or_fails(&p, NULL, "without a checkpoint");
		says_or_fails(&p, NULL, "step ");
		unlink(fill);
	}
	must_succeed(&p);
	workers_end(w, 0);
	same_result(&s, "one", "disk/run", true);
	same_samples(&s, "one", "disk/run");
	if (mounted)
		assert_int_equal(umount(disk), 0);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_again_and_again),  cmocka_unit_test(with_a_worker),
		cmocka_unit_test(an_older_coordinator),    cmocka_unit_test(a_later_coordinator),
		cmocka_unit_test(lost_before_the_plan),    cmocka_unit_test(a_full_disk),
		cmocka_unit_test(fails_before_it_goes_on),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	site_program(argv[0]);
	return cmocka_run_group_tests_name("train_again", tests, NULL, NULL);
}
