/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c - see limits.h. */
#include "ops/limits.h"

#include "base/err.h"
#include "base/log.h"
#include "base/open.h"
#include "base/os.h"
#include "job/role.h"
#include "net/shm_meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PROCESSORS = 1024 };

/* Whether a device may be the processor. */
static bool by_processor(const char *device)
{
	size_t n = strcspn(device, ":");
	return (n == 3 && !strncmp(device, "cpu", n)) || (n == 4 && !strncmp(device, "auto", n));
}

static const struct config_limits *limits_of(const struct config *c, int i)
{
	return i == ROLE_LOCAL ? &c->coordinator.limits : &c->workers[i].limits;
}

static bool shares(const struct config *c, int i)
{
	const struct config_coordinator *o = &c->coordinator;
	if (i == ROLE_LOCAL)
		return o->given && strcmp(o->device, "none") && by_processor(o->device) &&
		       (c->workers_invited || role_is_here(o->ip, o->hostname));
	const struct config_worker *w = &c->workers[i];
	return !w->invited && by_processor(w->device) && role_is_here(w->ip, w->hostname);
}

int limits_threads(const struct config *c, int i, int cores)
{
	const int64_t own = limits_of(c, i)->threads;
	int others = 0, given = 0; /* that say how many, and that do not */
	if (own)
		return own < cores ? (int)own : cores;
	if (!shares(c, i))
		return 0;
	for (int k = ROLE_LOCAL; k < (int)c->nworkers; k++) {
		const int64_t n = limits_of(c, k)->threads;
		if (!shares(c, k))
			continue;
		others += !n;
		given += n < cores ? (int)n : cores;
	}
	if (others < 2 && !given)
		return 0;
	const int left = cores - given, part = left / others, more = left % others;
	int place = 0; /* among those that do not say */
	for (int k = ROLE_LOCAL; k < i; k++)
		place += shares(c, k) && !limits_of(c, k)->threads;
	const int n = left > 0 ? part + (place < more) : 1;
	return n > 0 ? n : 1;
}

/* The lock stays for as long as this process lives. */
static bool take_processor(const char *folder, int number)
{
	char path[MEET_PATH + 32];
	snprintf(path, sizeof path, "%s/core-%d", folder, number);
	int fd = open_write(path, OPEN_LOCK, 0600);
	if (fd < 0)
		return false;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return true;
	close(fd);
	return false;
}

static void keep_apart(int threads, bool asked)
{
	char folder[MEET_PATH];
	int all[PROCESSORS], mine[PROCESSORS], n = os_processors(all, PROCESSORS), got = 0;
	struct err e = { 0 };
	if (threads >= n)
		return;
	if (meet_folder(true, folder, &e) < 0) {
		log_debug("threads are not kept to processors: %s", e.msg);
		return;
	}
	for (int i = 0; i < n && got < threads; i++)
		if (take_processor(folder, all[i]))
			mine[got++] = all[i];
	if (got < threads)
		log_line(asked ? LOG_WARN : LOG_DEBUG,
			 "%d processors are wanted, and other workers of this machine left %d: "
			 "they are shared (threads)",
			 threads, got);
	else if (os_keep_to(mine, got))
		log_debug("keeps to %d of %d processors, from number %d on", got, n, mine[0]);
}

int limits_take(const struct config_limits *l, int threads, struct err *e)
{
	os_limit(threads, l->memory > 0 ? (uint64_t)(l->memory * (1ull << 30)) : 0);
	if (threads)
		keep_apart(threads, l->threads > 0);
	errno = 0;
	if (l->nice && setpriority(PRIO_PROCESS, 0, (int)l->nice) < 0)
		return err_set(e, ERR_USAGE, "nice %lld is refused here: %s", (long long)l->nice,
			       strerror(errno));
	return 0;
}
