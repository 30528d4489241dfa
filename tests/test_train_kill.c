/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_kill.c - what is left when a process of a job is killed or stopped at a random moment,
 * or a cable is pulled, in a job that needs all of them (min_workers): the others leave with one
 * line, no process stays behind, and the last checkpoint resumes, also with another split and on
 * fewer machines.
 *
 * HS_KILLS: how many, in turn the coordinator, the first, the middle and the last worker; 8, and 3
 * in groups, unless said otherwise (scripts/kill-test.sh); TEST_LONG: 40 each. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "support/long.h"
#include "support/site.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STEPS "max_steps=80", "save_steps=2"
enum { WORKERS = 3, CHILDREN = 16, SILENCE = 3 /* seconds: peer_timeout */, LIMIT = SILENCE + 60 };

/* ---- processes that a coordinator started ---- */

struct child {
	pid_t pid;
	char worker; /* 'a', 'b', 'c' */
};

static bool look(pid_t pid, const char *what, char *out, size_t cap)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(out, 1, cap - 1, f) : 0;
	if (f)
		fclose(f);
	out[n] = 0;
	for (size_t i = 0; i < n; i++)
		out[i] = out[i] ? out[i] : ' ';
	return n > 0;
}

static int children(pid_t of, struct child *v)
{
	DIR *d = opendir("/proc");
	int n = 0;
	for (struct dirent *f; d && (f = readdir(d)) && n < CHILDREN;) {
		char text[4096];
		int parent;
		pid_t pid = (pid_t)strtol(f->d_name, NULL, 10);
		const char *at;
		if (pid <= 0 || !look(pid, "stat", text, sizeof text) ||
		    !(at = strrchr(text, ')')) || sscanf(at + 1, " %*c %d", &parent) != 1 ||
		    parent != of || !look(pid, "cmdline", text, sizeof text) ||
		    !(at = strstr(text, "--worker ")))
			continue;
		v[n++] = (struct child){ pid, at[9] };
	}
	if (d)
		closedir(d);
	return n;
}

/* Gone, or dead and only not yet collected by whoever inherits it. */
static bool is_gone(pid_t pid)
{
	char text[4096];
	const char *at;
	if (kill(pid, 0) < 0 && errno == ESRCH)
		return true;
	return !look(pid, "stat", text, sizeof text) ||
	       ((at = strrchr(text, ')')) && (at[2] == 'Z' || at[2] == 'X'));
}

static int orphans(const struct child *v, int n)
{
	int left = 0;
	for (int64_t end = clock_now() + (int64_t)LIMIT * 1000000000;; usleep(10000)) {
		left = 0;
		for (int i = 0; i < n; i++)
			left += !is_gone(v[i].pid);
		if (!left || clock_now() > end)
			break;
	}
	for (int i = 0; i < n; i++)
		if (!is_gone(v[i].pid))
			kill(v[i].pid, SIGKILL);
	return left;
}

/* ---- killing ---- */

struct tally {
	int kills[WORKERS + 1], stops, resumed, early, hangs, torn, orphans, unnamed;
	int64_t worst;
};

/* Which worker has which stage; the last splits have groups. */
static const struct split {
	const char *plan, *place; /* the workers in the order of their rows */
} split[] = {
	{ "shard_plan=[{id: a, start: 0, end: 2}, {id: b, start: 2, end: 4}, {id: c, start: 4, "
	  "end: 6, is_last: true}]",
	  "abc" },
	{ "shard_plan=[{id: c, start: 0, end: 1}, {id: a, start: 1, end: 5}, {id: b, start: 5, "
	  "end: 6, is_last: true}]",
	  "cab" },
	{ "shard_plan=[{id: [a, b, c], share: [1, 2, 1], start: 0, end: 6, is_last: true}]",
	  "abc" },
	{ "shard_plan=[{id: [c, a], start: 0, end: 4}, {id: b, start: 4, end: 6, is_last: true}]",
	  "cab" },
	{ "shard_plan=[{id: b, start: 0, end: 1}, {id: [c, a], share: [1, 3], start: 1, end: 6, "
	  "is_last: true}]",
	  "bca" },
};
enum { GROUPS = 2 /* the first split with a group */ };

/* A run with one victim. `spawned`: the coordinator starts its workers. role 0: the coordinator, 1
 * to 3: the first, middle, last worker. `training`: `after` seconds count from the second step on,
 * not from the start. False: it had ended before. */
static bool one_kill(const struct site *s, struct tally *t, int role, const struct split *on,
		     bool stop, bool spawned, bool training, double after)
{
	struct process w[WORKERS], p;
	struct child child[CHILDREN];
	char victim = role ? on->place[role - 1] : 0, word[3] = { 0 }, name[32];
	int nchild = 0, status[WORKERS + 1] = { 0 };
	bool resume = has_checkpoint(s, "two");
	for (int i = 0; i < WORKERS && !spawned; i++) {
		word[0] = (char)('a' + i);
		w[i] = site_start(s, "worker", "--worker", word, "two.yaml", "peer_timeout=3",
				  NULL);
	}
	for (int i = 0; i < WORKERS && !spawned; i++)
		until(&w[i], "listens");
	p = site_start(s, "train", "two.yaml", on->plan, STEPS, "peer_timeout=3", "join_timeout=20",
		       "min_workers=3", "rejoin_timeout=0",
		       resume ? "resume_from_checkpoint=latest" : "overwrite_output_dir=true",
		       NULL);
	for (int64_t end = clock_now() + (int64_t)PATIENCE * 1000000000;
	     spawned && nchild < WORKERS && clock_now() < end; usleep(2000))
		nchild = children(p.pid, child);
	for (int64_t end = clock_now() + (int64_t)PATIENCE * 1000000000;
	     training && !says(&p, "step ") && !is_gone(p.pid) && clock_now() < end;)
		usleep(1000);
	usleep((useconds_t)(after * 1e6));
	if (spawned)
		nchild = children(p.pid, child);
	pid_t pid = role ? -1 : p.pid;
	for (int i = 0; role && i < (spawned ? nchild : WORKERS); i++)
		if (spawned ? child[i].worker == victim : 'a' + i == victim)
			pid = spawned ? child[i].pid : w[i].pid;
	int64_t when = clock_now();
	if (pid > 0)
		kill(pid, stop ? SIGSTOP : SIGKILL);
	bool waits[WORKERS + 1] = { false };
	int64_t took = 0;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i <= WORKERS; i++) {
			const struct process *q = i ? &w[i - 1] : &p;
			if ((i && spawned) || q->pid == pid || (round && !waits[i]))
				continue;
			/* the coordinator died before it came to this one: it goes on waiting for
			 * one, and rightly */
			waits[i] = !round && !role && i && !says(q, "has joined");
			if (waits[i])
				continue;
			if (round)
				kill(q->pid, SIGINT);
			status[i] = finished_or_hangs(q, LIMIT);
			t->hangs += status[i] < 0;
		}
		took = round ? took : clock_now() - when;
	}
	if (!role || !spawned) {
		const struct process *q = role ? &w[victim - 'a'] : &p;
		kill(q->pid, SIGKILL);
		status[role ? victim - 'a' + 1 : 0] = finished(q, PATIENCE);
	}
	t->orphans += orphans(child, nchild);
	no_torn_checkpoint(s, "two");
	t->resumed += resume;
	int own = status[role ? victim - 'a' + 1 : 0];
	if (pid < 0 || status[0] == 0 || ((!role || !spawned) && own != 1000 + SIGKILL))
		return false;
	for (int i = 0; i <= WORKERS; i++)
		if (!(i && spawned) && i != (role ? victim - 'a' + 1 : 0) && status[i] != 1) {
			show_log(i ? &w[i - 1] : &p);
			fail_msg("status %d of %s", status[i], i ? "a worker" : "the coordinator");
		}
	snprintf(name, sizeof name, "worker '%c' (box%c, ", victim, victim);
	if (role && !says(&p, name)) {
		show_log(&p);
		t->unnamed++;
	}
	if (took > t->worst)
		t->worst = took;
	t->kills[role]++;
	t->stops += stop;
	return true;
}

/* How many kills when HS_KILLS does not say. */
static int kills_or(int few, int many)
{
	const char *env = getenv("HS_KILLS");
	return env ? (int)strtol(env, NULL, 10) : test_is_long() ? many : few;
}

/* Runs on n splits in turn, of which `kills` lose somebody; each goes on from the checkpoint of the
 * one before, whatever its split was. */
static void kill_on(const struct split *on, int n, int kills, bool training)
{
	const char *seed_text = getenv("HS_SEED");
	struct rng_key key = rng_key(seed_text ? strtoull(seed_text, NULL, 10) : 1);
	struct tally t = { .worst = 0 };
	struct site s;
	uint64_t at = 0;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", WORKERS, "");
	struct process p = site_start(&s, "train", "one.yaml", STEPS, NULL);
	must_succeed(&p);
	for (int done = 0; done < kills;) {
		/* workers first: each split loses each of them before all begins again */
		int role = (done + (training ? 1 : 0)) % (WORKERS + 1);
		bool stop = rng_below(key, at++, 4) == 0, spawned = rng_below(key, at++, 2);
		if (one_kill(&s, &t, role, &on[training ? done % n : done / (WORKERS + 1) % n],
			     stop, spawned, training,
			     (double)rng_uniform(key, at++, 0, training ? 0.3f : 1.2f))) {
			done++;
			continue;
		}
		struct err e = { 0 };
		char path[512];
		snprintf(path, sizeof path, "%.300s/two", s.t.dir);
		if (dir_remove(path, &e) < 0 && access(path, F_OK) == 0)
			fail_msg("%s", e.msg);
		assert_true(++t.early < 20 + 2 * kills);
	}
	printf("kills: coordinator %d, first %d, middle %d, last worker %d; %d of them by SIGSTOP; "
	       "%d runs went on from a checkpoint, %d had ended before\n",
	       t.kills[0], t.kills[1], t.kills[2], t.kills[3], t.stops, t.resumed, t.early);
	printf("hangs %d, torn checkpoints %d, orphans %d, not named %d; the others had left after "
	       "%.1f s at most (join_timeout 20, peer_timeout %d)\n",
	       t.hangs, t.torn, t.orphans, t.unnamed, clock_seconds(t.worst), SILENCE);
	assert_int_equal(t.hangs + t.torn + t.orphans + t.unnamed, 0);
	/* one machine less, another split */
	p = site_start(
		&s, "train", "two.yaml",
		"shard_plan=[{id: c, start: 0, end: 1}, {id: a, start: 1, end: 6, is_last: true}]",
		STEPS,
		has_checkpoint(&s, "two") ? "resume_from_checkpoint=latest"
					  : "overwrite_output_dir=true",
		NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", false);
	tiny_remove(&s.t);
}

static void killed_at_random_moments(void **state)
{
	(void)state;
	kill_on(split, GROUPS, kills_or(8, 40), false);
}

/* Members of groups, while they train: computing, sending parts of sums, waiting for them. */
static void members_killed_while_training(void **state)
{
	(void)state;
	kill_on(split + GROUPS, ARRAY_LEN(split) - GROUPS, kills_or(3, 40), true);
}

/* Ctrl-C saves; the run goes on with other groups and has the bits of one process. */
static void interrupted_in_a_group(void **state)
{
	struct site s;
	(void)state;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", WORKERS, "");
	struct process p =
		site_start(&s, "train", "one.yaml", "max_steps=40", "save_steps=0", NULL);
	must_succeed(&p);
	for (size_t i = GROUPS; i < ARRAY_LEN(split); i++) {
		const bool first = i == GROUPS;
		char until_step[32];
		snprintf(until_step, sizeof until_step, " %zu/40", 4 + 6 * (i - GROUPS));
		p = site_start(
			&s, "train", "two.yaml", split[i].plan, "max_steps=40", "save_steps=0",
			first ? "overwrite_output_dir=true" : "resume_from_checkpoint=latest",
			NULL);
		until(&p, until_step);
		kill(p.pid, SIGINT);
		must_fail(&p, 1, "interrupted after step");
		assert_true(has_checkpoint(&s, "two"));
		no_torn_checkpoint(&s, "two");
	}
	p = site_start(&s, "train", "two.yaml", split[GROUPS].plan, "max_steps=40", "save_steps=0",
		       "resume_from_checkpoint=latest", NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", false);
	tiny_remove(&s.t);
}

/* ---- the cable ---- */

static int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 20, fmt, ap);
	va_end(ap);
	memcpy(line + n, " 2>/dev/null", 13);
	return system(line);
}

static char tag[16]; /* of this test's bridge and namespaces */

static void boxes_remove(void)
{
	for (int i = 1; i <= WORKERS; i++)
		shell("ip netns del %s-%d", tag, i);
	shell("ip link del %s", tag);
}

/* Namespaces TAG-1 to TAG-3 with 10.78.0.N, each by a cable TAG.N to one switch. */
static bool boxes_make(void)
{
	snprintf(tag, sizeof tag, "hk%d", (int)getpid() % 1000000);
	if (geteuid() || shell("ip link add %s type bridge && ip link set %s up", tag, tag))
		return false;
	for (int i = 1; i <= WORKERS; i++)
		if (shell("ip netns add %s-%d && ip link add %s.%d type veth peer name eth0 netns "
			  "%s-%d && ip link set %s.%d "
			  "master %s up && "
			  "ip -n %s-%d addr add 10.78.0.%d/24 dev eth0 && ip -n %s-%d link set lo "
			  "up && ip -n %s-%d link set eth0 "
			  "up",
			  tag, i, tag, i, tag, i, tag, i, tag, tag, i, i, tag, i, tag, i))
			return false;
	return true;
}

static struct process in_box(const struct site *s, int box, const char *more)
{
	static char name[32];
	snprintf(name, sizeof name, "%s-%d", tag, box);
	site_namespace(name);
	struct process p =
		site_start(s, "train", "three.yaml", "max_steps=100000", "save_steps=2",
			   "peer_timeout=3", "min_workers=3", "rejoin_timeout=0", more, NULL);
	site_namespace(NULL);
	return p;
}

/* After a cable is pulled no packet arrives, so no close or reset of a connection either. */
static void a_pulled_cable(void **state)
{
	(void)state;
	struct site s;
	struct buf b = BUF_INIT;
	if (!boxes_make()) {
		boxes_remove();
		print_message(
			"skipped: no network namespaces here (root and ip netns are needed)\n");
		skip();
	}
	site_make(&s);
	buf_addf(&b,
		 "key_file: %s/key\nsave_total_limit: 3\n"
		 "coordinator: {hostname: boxa, ip: 10.78.0.1, port: %d, device: cpu, public_key: "
		 "'%s'}\nworkers:\n",
		 s.t.dir, s.port, s.key.pub);
	for (int i = 2; i <= WORKERS; i++)
		buf_addf(&b,
			 "- {id: %c, hostname: box%c, ip: 10.78.0.%d, port: %d, device: cpu, "
			 "public_key: '%s'}\n",
			 'a' + i - 1, 'a' + i - 1, i, s.port + i, s.key.pub);
	buf_adds(&b, "shard_plan: [{id: local, start: 0, end: 2}, {id: b, start: 2, end: 4}, {id: "
		     "c, start: 4, end: 6, is_last: "
		     "true}]\n");
	site_configuration(&s, "three", 0, b.p);
	buf_release(&b);
	/* of the middle, of the last, of the coordinator */
	static const int pulled[] = { 2, 3, 1 };
	for (size_t i = 0; i < ARRAY_LEN(pulled); i++) {
		struct process p[WORKERS];
		int64_t worst = 0;
		for (int k = WORKERS - 1; k >= 0; k--)
			p[k] = in_box(&s, k + 1,
				      i ? "resume_from_checkpoint=latest"
					: "overwrite_output_dir=true");
		until(&p[0], "saved ");
		int64_t when = clock_now();
		assert_int_equal(shell("ip link set %s.%d down", tag, pulled[i]), 0);
		for (int k = 0; k < WORKERS; k++) {
			char named[32] = "coordinator (10.78.0.1";
			int status = finished(&p[k], LIMIT);
			worst = clock_now() - when;
			if (status != 1) {
				show_log(&p[k]);
				fail_msg("status %d of box %d, the cable of %d was pulled", status,
					 k + 1, pulled[i]);
			}
			if (k == 0 && pulled[i] > 1) {
				snprintf(named, sizeof named, "worker '%c' (box%c, 10.78.0.%d",
					 'a' + pulled[i] - 1, 'a' + pulled[i] - 1, pulled[i]);
				if (!says(&p[0], named) || !says(&p[0], " in step ")) {
					show_log(&p[0]);
					fail_msg("'%s' and the step are not named", named);
				}
			}
			char *log = site_text(p[k].log);
			const char *line = strstr(log, "error:");
			printf("  box %d: %.*s\n", k + 1, line ? (int)strcspn(line, "\n") : 0,
			       line ? line : "");
			assert_non_null(line);
			assert_null(strstr(line + 1, "error:"));
			mem_free(log);
		}
		no_torn_checkpoint(&s, "three");
		printf("cable of box %d: all had left after %.1f s (peer_timeout %d)\n", pulled[i],
		       clock_seconds(worst), SILENCE);
		assert_int_equal(shell("ip link set %s.%d up", tag, pulled[i]), 0);
	}
	boxes_remove();
	/* on one machine, and the cluster is forgotten */
	assert_true(has_checkpoint(&s, "three"));
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_random_moments),
		cmocka_unit_test(members_killed_while_training),
		cmocka_unit_test(interrupted_in_a_group),
		cmocka_unit_test(a_pulled_cable),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
