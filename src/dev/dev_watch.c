/* SPDX-License-Identifier: Apache-2.0 */
/* dev_watch.c - see dev_watch.h. The thread is started by the first device of the process and
 * stays. */
#include "dev/dev_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dev_watch *all;
static pid_t started_in; /* a child of fork() has no thread of ours */
static double limit;     /* seconds */
static void (*on_hang)(const char *line);

double dev_time_limit(void)
{
	const double usual = 120, most = 1e9;
	const char *s = getenv("HS_DEVICE_TIMEOUT");
	char *end;
	if (!s || !*s)
		return usual;
	double v = strtod(s, &end);
	if (*end || !(v >= 0)) {
		log_warn("HS_DEVICE_TIMEOUT is '%s', not a number of seconds: %g is used", s,
			 usual);
		return usual;
	}
	return v < most ? v : most;
}

static void tell(struct dev_watch *w, double waited)
{
	char line[400];
	w->told = true;
	snprintf(line, sizeof line, "%s hangs: %s has not ended after %.1f s (HS_DEVICE_TIMEOUT)",
		 w->name, w->what, waited);
	if (on_hang)
		on_hang(line);
	else
		log_error("%s", line);
}

static void *look(void *ctx)
{
	(void)ctx;
	for (;;) {
		usleep(limit < 2 ? 50000 : 500000);
		pthread_mutex_lock(&lock);
		for (struct dev_watch *w = all; w; w = w->next) {
			const int64_t since = atomic_load_explicit(&w->since, memory_order_acquire);
			const double waited = since ? clock_seconds(clock_now() - since) : 0;
			if (waited > limit && !w->told)
				tell(w, waited);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void start(void)
{
	pthread_t t;
	pthread_attr_t attr;
	limit = dev_time_limit();
	if (limit <= 0)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (pthread_create(&t, &attr, look, NULL))
		log_warn("devices are not watched: no thread could be started");
	pthread_attr_destroy(&attr);
}

void dev_watch_on_hang(void (*fn)(const char *line))
{
	pthread_mutex_lock(&lock);
	on_hang = fn;
	pthread_mutex_unlock(&lock);
}

void dev_watch_open(struct dev_watch *w, const char *name)
{
	w->name = name;
	w->what = "";
	w->told = false;
	atomic_init(&w->since, 0);
	pthread_mutex_lock(&lock);
	if (started_in != getpid()) {
		started_in = getpid();
		start();
	}
	w->next = all;
	all = w;
	pthread_mutex_unlock(&lock);
}

void dev_watch_close(struct dev_watch *w)
{
	pthread_mutex_lock(&lock);
	for (struct dev_watch **p = &all; *p; p = &(*p)->next)
		if (*p == w) {
			*p = w->next;
			break;
		}
	pthread_mutex_unlock(&lock);
}

void dev_watch_begin(struct dev_watch *w, const char *what)
{
	w->what = what;
	atomic_store_explicit(&w->since, clock_now(), memory_order_release);
}

void dev_watch_end(struct dev_watch *w)
{
	atomic_store_explicit(&w->since, 0, memory_order_release);
}

/* ---- work under way ---- */

static struct {
	const char *_Atomic who;
	const char *const *what;
} work[32];

void dev_work_add(const char *who, const char *const *what)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_LEN(work); i++)
		if (!work[i].who) {
			work[i].what = what;
			work[i].who = who;
			break;
		}
	pthread_mutex_unlock(&lock);
}

void dev_work_remove(const char *who)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_LEN(work); i++)
		if (work[i].who == who)
			work[i].who = NULL;
	pthread_mutex_unlock(&lock);
}

static void say(int fd, const char *s)
{
	if (write(fd, s, strlen(s)) < 0)
		return; /* nobody is left to be told */
}

void dev_work_say(int fd)
{
	for (size_t i = 0; i < ARRAY_LEN(work); i++) {
		const char *who = work[i].who;
		if (!who)
			continue;
		const char *what = *work[i].what;
		say(fd, who);
		say(fd, ": the process is aborted; last work given to it: ");
		say(fd, what ? what : "none");
		say(fd, "\n");
	}
}
