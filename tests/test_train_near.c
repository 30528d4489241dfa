/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_near.c - a job over processes of one machine: without keys in the configuration the
 * workers get keys of their own, which stand in no argument and no environment; links go through
 * shared memory; a program that took a worker's port is reported; a worker started by hand is
 * used. */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/net.h"
#include "support/site.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* NAME.yaml: a coordinator without a device and the workers 'a' and 'b', without keys. */
static void keyless(const struct site *s, const char *name)
{
	char text[600];
	snprintf(text, sizeof text,
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, hostname: a, ip: 127.0.0.2, port: %d, device: cpu}\n"
		 "- {id: b, hostname: b, ip: 127.0.0.3, port: %d, device: cpu}\n",
		 s->port, s->port + 1, s->port + 2);
	site_configuration(s, name, 0, text);
}

/* Whether a file of /proc says so; with NULs in it. */
static bool proc_says(long pid, const char *file, const char *what)
{
	char path[64];
	static char all[1 << 20];
	snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
	FILE *f = fopen(path, "r");
	if (!f)
		return false;
	size_t n = fread(all, 1, sizeof all, f);
	fclose(f);
	return memmem(all, n, what, strlen(what)) != NULL;
}

/* The worker `id` that process `parent` has started; 0: none yet. */
static long worker_of(pid_t parent, const char *id)
{
	char path[64], word[16];
	long pid, found = 0;
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
	size_t n = (size_t)snprintf(word, sizeof word, "--worker%c%s", 0, id);
	FILE *f = fopen(path, "r");
	while (f && !found && fscanf(f, "%ld", &pid) == 1) {
		char all[4096];
		snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
		FILE *g = fopen(path, "r");
		size_t k = g ? fread(all, 1, sizeof all, g) : 0;
		if (g)
			fclose(g);
		if (memmem(all, k, word, n + 1))
			found = pid;
	}
	if (f)
		fclose(f);
	return found;
}

/* A process of this user that has no key of the job. */
static void is_refused(const char *transport, const char *at)
{
	struct net *n;
	struct link *l;
	struct err e;
	assert_true(net_open(transport, NULL, &n, &e) >= 0);
	assert_int_equal(net_connect(n, at, NULL, net_in(10), &l, &e), ERR_NET);
	printf("  %s: %s\n", transport, e.msg);
	assert_non_null(strstr(e.msg, "the other none"));
	net_close(n, 0);
}

static void workers_get_keys_of_their_own(void **state)
{
	(void)state;
	struct site s;
	char at[NET_ADDRESS];
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	keyless(&s, "two");
	struct process p = site_start(&s, "train", "one.yaml", NULL);
	must_succeed(&p);
	p = site_start(&s, "train", "two.yaml", NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", true);
	/* and looked at while it runs */
	p = site_start(&s, "train", "two.yaml", "max_steps=100000", "overwrite_output_dir=true",
		       NULL);
	until(&p, " 2/100000 ");
	for (int i = 0; i < 2; i++) {
		long pid = worker_of(p.pid, i ? "b" : "a");
		assert_true(pid > 0);
		assert_true(proc_says(pid, "cmdline", "worker"));
		assert_false(proc_says(pid, "cmdline", "hs1-"));
		assert_false(proc_says(pid, "environ", "hs1-"));
		if (geteuid() == 0) /* the process cannot be looked into by others of its user */
			assert_true(proc_says(pid, "maps", "memfd:heteroshard-link"));
		snprintf(at, sizeof at, "127.0.0.%d:%d", i + 2, s.port + 1 + i);
		is_refused("shm", at);
		is_refused("tls", at);
	}
	kill(p.pid, SIGINT);
	assert_int_equal(finished(&p, PATIENCE), 1);
	tiny_remove(&s.t);
}

static void a_worker_by_hand_is_used(void **state)
{
	(void)state;
	struct site s;
	char from[64];
	site_make(&s);
	keyless(&s, "two");
	struct process w = site_start(&s, "worker", "--worker", "a", "two.yaml", NULL);
	until(&w, "listens");
	struct process p = site_start(&s, "train", "two.yaml", NULL); /* starts the other one */
	must_succeed(&p);
	must_succeed(&w);
	assert_true(says(&p, "worker 'a'") && says(&p, "it is used"));
	snprintf(from, sizeof from, "(process %d of this machine, shared memory)", (int)p.pid);
	assert_true(says(&w, from));
	/* as the user may have it: TCP without keys */
	w = site_start(&s, "worker", "--worker", "a", "two.yaml", "transport=tls", NULL);
	until(&w, "listens");
	p = site_start(&s, "worker", "--worker", "b", "two.yaml", "transport=tls", NULL);
	until(&p, "listens");
	struct process c = site_start(&s, "train", "two.yaml", "transport=tls", "max_steps=1",
				      "warmup_steps=0", "overwrite_output_dir=true", NULL);
	must_succeed(&c);
	must_succeed(&w);
	must_succeed(&p);
	assert_true(says(&w, "(127.0.0.1, TCP)"));
	tiny_remove(&s.t);
}

/* A program that listens at a worker's port before it: the job ends, and says where. */
static void a_port_that_is_taken(void **state)
{
	(void)state;
	struct site s;
	char at[64];
	site_make(&s);
	keyless(&s, "two");
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(s.port + 2)),
				 .sin_addr.s_addr = htonl(0x7f000003) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_true(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 1) == 0);
	struct process p = site_start(&s, "train", "two.yaml", NULL);
	snprintf(at, sizeof at, "listens at 127.0.0.3:%d", s.port + 2);
	must_fail(&p, 1, at);
	assert_true(says(&p, "another program"));
	close(fd);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(workers_get_keys_of_their_own),
		cmocka_unit_test(a_worker_by_hand_is_used),
		cmocka_unit_test(a_port_that_is_taken),
	};
	return cmocka_run_group_tests_name("train_near", tests, NULL, NULL);
}
