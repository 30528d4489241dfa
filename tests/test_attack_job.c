/* SPDX-License-Identifier: Apache-2.0 */
/* test_attack_job.c - strangers attack a worker of a running job: a coordinator and two workers
 * over tls on loopback. The job goes on, its memory stays bounded, its result is that of a job that
 * nobody attacks.
 *
 * With TEST_LONG set (`make test-long`) the speed is measured as well: the steps of a window under
 * each attack against those of the windows before and behind it with a spin loop in the attacker's
 * control group. It must be 90 % in the median, where the machine is steady enough to tell: the
 * windows with the spin loop differ by 5 % or less. Elsewhere the best of the five windows must
 * reach it: an attack that holds up the job in all of them fails on any machine. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stat.h"
#include "net/net.h"
#include "support/attack.h"
#include "support/long.h"
#include "support/site.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool counts_memory = false; /* the sanitizers' own memory is in the figure */
#else
static const bool counts_memory = true;
#endif

/* The memory in KiB that all strangers together may cost a worker: 64 connections of 64 KiB.
 * OWN_KIB is what a training process takes by itself after step BEGIN, at which the attacks
 * begin. */
enum { STRANGERS_KIB = 64 * 64, OWN_KIB = 2 << 10, BEGIN = 120, STEPS = 2000 };
#define SMALL                                                                                      \
	"gradient_accumulation_steps=1", "micro_batch_size=1", "save_steps=0", "val_set_size=0"

/* ---- a job ---- */

struct job {
	struct site s;
	struct process coordinator, worker[2];
	long kib[2]; /* the most memory of each worker, so far */
};

static void job_start(struct job *j, const char *steps)
{
	site_configuration(&j->s, "two", 2, "transport: tls\n");
	for (int i = 0; i < 2; i++) {
		j->worker[i] =
			site_start(&j->s, "worker", "--worker", i ? "b" : "a", "two.yaml", NULL);
		until(&j->worker[i], "listens");
		j->kib[i] = 0;
	}
	j->coordinator = site_start(&j->s, "train", "two.yaml", steps, SMALL, NULL);
}

/* The number of steps that are done. */
static long steps_of(const struct job *j)
{
	char path[512];
	long n = 0;
	snprintf(path, sizeof path, "%s/two/metrics.jsonl", j->s.t.dir);
	char *t = site_text(path);
	for (const char *at = t; (at = strstr(at, "\"grad_norm\":")); at++)
		n++;
	mem_free(t);
	return n;
}

static void until_step(const struct job *j, long step)
{
	for (int64_t end = net_in(PATIENCE); clock_now() < end; usleep(5000))
		if (steps_of(j) >= step)
			return;
	show_log(&j->coordinator);
	fail_msg("step %ld did not come", step);
}

static void look_at_memory(struct job *j)
{
	for (int i = 0; i < 2; i++) {
		char path[64], line[256];
		snprintf(path, sizeof path, "/proc/%d/status", (int)j->worker[i].pid);
		FILE *f = fopen(path, "re");
		while (f && fgets(line, sizeof line, f))
			sscanf(line, "VmHWM: %ld", &j->kib[i]);
		if (f)
			fclose(f);
	}
}

static struct attacker attack(const struct job *j, enum attack what)
{
	return attack_start(what, 2, j->s.port + 1, j->s.key.pub);
}

/* ---- what must hold ---- */

static void the_result_is_that_of_a_quiet_job(void **state)
{
	(void)state;
	struct job j;
	struct attacker a[ATTACKS];
	int reached = 0;
	char steps[32];
	snprintf(steps, sizeof steps, "max_steps=%d", STEPS);
	site_make(&j.s);
	site_configuration(&j.s, "one", 0, "");
	struct process p = site_start(&j.s, "train", "one.yaml", steps, SMALL, NULL);
	must_succeed(&p);
	job_start(&j, steps);
	until_step(&j, BEGIN);
	look_at_memory(&j);
	long before[2] = { j.kib[0], j.kib[1] };
	if (!attack_limit(60))
		printf("no control group can be made: the attackers only have a low priority\n");
	for (int i = 0; i < ATTACKS; i++)
		a[i] = attack(&j, (enum attack)i);
	while (steps_of(&j) < STEPS) {
		look_at_memory(&j);
		if (kill(j.coordinator.pid, 0) < 0 || says(&j.coordinator, "error:"))
			break;
		usleep(20000);
	}
	for (int i = 0; i < ATTACKS; i++) {
		printf("%-22s %8llu connections, %12llu bytes\n", attack_name[i],
		       (unsigned long long)a[i].count->connections,
		       (unsigned long long)a[i].count->bytes);
		reached += a[i].count->connections > 0;
		attack_stop(&a[i]);
	}
	/* on a busy machine not every attacker gets its turn while the job runs */
	assert_true(reached >= ATTACKS - 2);
	must_succeed(&j.coordinator);
	for (int i = 0; i < 2; i++) {
		must_succeed(&j.worker[i]);
		printf("worker '%c': %ld KiB before, %ld more\n", 'a' + i, before[i],
		       j.kib[i] - before[i]);
		if (counts_memory)
			assert_true(j.kib[i] - before[i] <= STRANGERS_KIB + OWN_KIB);
	}
	assert_true(says(&j.worker[0], "is not on this machine's list"));
	same_result(&j.s, "one", "two", true);
	attack_end();
	tiny_remove(&j.s.t);
}

/* ---- how fast ---- */

enum { ROUNDS = 5 };
static const double window = 3; /* seconds */
static const double least = 0.9, steady = 1.05;

/* Steps a second while this attack runs beside the job. */
static double speed(const struct job *j, enum attack what)
{
	struct attacker a = attack(j, what);
	usleep(300000);
	long n = steps_of(j);
	int64_t began = clock_now();
	usleep((useconds_t)(window * 1e6));
	n = steps_of(j) - n;
	double seconds = clock_seconds(clock_now() - began);
	attack_stop(&a);
	return (double)n / seconds;
}

static void the_speed_under_attack(void **state)
{
	(void)state;
	struct job j;
	if (!test_is_long()) {
		printf("the speed is measured by make test-long\n");
		return;
	}
	if (!attack_limit(10)) {
		printf("no control group can be made\n");
		skip();
	}
	site_make(&j.s);
	job_start(&j, "max_steps=10000000");
	until_step(&j, 3);
	printf("%-22s %10s %10s %8s\n", "attack", "steps/s", "spin loop", "share");
	for (int i = 0; i < ATTACKS; i++) {
		double share[ROUNDS], fast[ROUNDS], spin[ROUNDS];
		double first = speed(&j, ATTACK_SPIN);
		for (int k = 0; k < ROUNDS; k++) {
			fast[k] = speed(&j, (enum attack)i);
			double last = speed(&j, ATTACK_SPIN);
			spin[k] = (first + last) / 2;
			share[k] = fast[k] / spin[k];
			first = last;
		}
		stat_sort(share, ROUNDS);
		stat_sort(fast, ROUNDS);
		stat_sort(spin, ROUNDS);
		printf("%-22s %10.1f %10.1f %6.0f %%   (%.0f to %.0f %%)\n", attack_name[i],
		       fast[ROUNDS / 2], spin[ROUNDS / 2], 100 * share[ROUNDS / 2], 100 * share[0],
		       100 * share[ROUNDS - 1]);
		fflush(stdout);
		assert_true(fast[0] > 0);
		const bool tells = spin[ROUNDS - 1] <= steady * spin[0];
		if (!tells)
			printf("%-22s the best window is judged: those of the spin loop differ by "
			       "%.0f %%\n",
			       "", 100 * (spin[ROUNDS - 1] / spin[0] - 1));
		assert_true(share[tells ? ROUNDS / 2 : ROUNDS - 1] >= least);
	}
	kill(j.coordinator.pid, SIGINT);
	assert_int_equal(finished(&j.coordinator, PATIENCE), 1);
	for (int i = 0; i < 2; i++)
		must_succeed(&j.worker[i]);
	attack_end();
	tiny_remove(&j.s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_result_is_that_of_a_quiet_job),
		cmocka_unit_test(the_speed_under_attack),
	};
	return cmocka_run_group_tests_name("attack_job", tests, NULL, NULL);
}
