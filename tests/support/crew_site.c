/* SPDX-License-Identifier: Apache-2.0 */
/* crew_site.c - see crew_site.h. */
#include "support/crew_site.h"

#include "base/clock.h"
#include "base/mem.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const char *const crew_plan[4] = {
	"shard_plan=[{id: a, start: 0, end: 2}, {id: b, start: 2, end: 3}, {id: c, start: 3, "
	"end: 5}, {id: d, start: 5, end: 6}]",
	"shard_plan=[{id: [a, b], start: 0, end: 3}, {id: [c, d], share: [2, 1], start: 3, end: "
	"6}]",
	"shard_plan=[{id: [a, b, c, d], share: [1, 2, 1, 1], start: 0, end: 6}]",
	"shard_plan=[{id: a, start: 0, end: 2}, {id: [b, c, d], start: 2, end: 6}]",
};

static struct process begin(const struct site *s, int i)
{
	char word[3] = { (char)('a' + i), 0 };
	return site_start(s, "worker", "--worker", word, "two.yaml", "peer_timeout=5", NULL);
}

struct process start_worker(const struct site *s, int i)
{
	struct process p = begin(s, i);
	until(&p, "listens");
	return p;
}

void start_workers(const struct site *s, struct process w[WORKERS])
{
	for (int i = 0; i < WORKERS; i++)
		w[i] = begin(s, i);
	for (int i = 0; i < WORKERS; i++)
		until(&w[i], "listens");
}

bool waits_for(const struct process *p, const char *what)
{
	for (int64_t end = clock_now() + (int64_t)LIMIT * 1000000000; clock_now() < end;
	     usleep(500)) {
		if (says(p, what))
			return true;
		if (says(p, "adapter in") || says(p, "error"))
			return false;
	}
	return false;
}

void says_or_fails(const struct process *p, const struct process *w, const char *what)
{
	if (waits_for(p, what))
		return;
	show_log(p);
	if (w)
		show_log(w);
	fail_msg("'%s' was not said", what);
}

void workers_end(const struct process *w, int first)
{
	for (int i = first; i < WORKERS; i++)
		assert_int_equal(finished(&w[i], LIMIT), 0);
}

void kill_now(const struct process *p)
{
	kill(p->pid, SIGKILL);
	finished(p, PATIENCE);
}

void same_samples(const struct site *s, const char *a, const char *b)
{
	char name[128];
	size_t n, n2;
	snprintf(name, sizeof name, "%s/samples.jsonl", a);
	char *one = tiny_read(&s->t, name, &n);
	snprintf(name, sizeof name, "%s/samples.jsonl", b);
	char *two = tiny_read(&s->t, name, &n2);
	if (n != n2 || memcmp(one, two, n))
		fail_msg("other samples: %.*s\nand %.*s", (int)n, one, (int)n2, two);
	mem_free(one);
	mem_free(two);
}
