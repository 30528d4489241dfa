/* SPDX-License-Identifier: Apache-2.0 */
/* rt_queue.c - see rt.h: errors of the driver, waiting for the device, how much may be queued. */
#include "dev/rt.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/os.h"

#include <sched.h>
#include <time.h>

#define SPIN_NS 50000 /* shorter waits are busy waits */
#define LONGEST_NS 200000

int rt_failed(struct rt *c, int code, const char *what, struct err *e)
{
	if (code == RT_OK)
		return 0;
	if (code == RT_OUT_OF_MEMORY)
		return err_set(e, ERR_NOMEM, "%s: %s: %s", c->label, what, c->v->error(c->f, code));
	/* after a failed kernel every later call fails too: nothing of it can be trusted */
	c->lost = true;
	return err_set(e, ERR_DEVICE, "%s: %s: %s (last work: %s)", c->label, what,
		       c->v->error(c->f, code), c->doing ? c->doing : "none");
}

int rt_enter(struct rt *c, struct err *e)
{
	static _Thread_local uint64_t current;
	if (c->lost)
		return err_set(e, ERR_DEVICE, "%s failed before and is not used again", c->label);
	if (current != c->id) {
		TRY(rt_failed(c, c->v->enter(c), "choosing it", e));
		os_exact_sleeps();
		current = c->id;
	}
	return 0;
}

/* ERR_DEVICE when nothing has come back for longer than the limit, since `began` or the last mark
 * that has happened. */
static int in_time(struct rt *c, int64_t began, struct err *e)
{
	const int64_t waited = clock_now() - (c->progress > began ? c->progress : began);
	if (!c->limit || waited <= c->limit)
		return 0;
	c->lost = true;
	return err_set(e, ERR_DEVICE,
		       "%s does not answer: nothing has come back for %.1f s (HS_DEVICE_TIMEOUT); "
		       "its last work was %s; the device hangs, or is gone",
		       c->label, clock_seconds(waited), c->doing ? c->doing : "none");
}

/* Takes off the marks that have happened. Errors are left to whoever waits. */
static void look(struct rt *c)
{
	while (c->marks && c->f->event_query(c->mark[c->first_mark]) == RT_OK) {
		if (c->finished < c->mark_at[c->first_mark])
			c->finished = c->mark_at[c->first_mark];
		c->first_mark = (c->first_mark + 1) % RT_MARKS;
		c->marks--;
		c->progress = clock_now();
	}
}

int rt_ahead_make(const struct rt_functions *f, struct rt_ahead *h)
{
	int code = h->stream ? RT_OK : f->stream(&h->stream, RT_NON_BLOCKING);
	if (code == RT_OK && !h->fork)
		code = f->event(&h->fork, RT_NO_TIMING);
	return code == RT_OK && !h->join ? f->event(&h->join, RT_NO_TIMING) : code;
}

void rt_ahead_free(const struct rt_functions *f, struct rt_ahead *h)
{
	if (h->fork)
		f->event_destroy(h->fork);
	if (h->join)
		f->event_destroy(h->join);
	if (h->stream)
		f->stream_destroy(h->stream);
	*h = (struct rt_ahead){ 0 };
}

int rt_wait(struct rt *c, void *event, struct err *e)
{
	const int64_t began = clock_now();
	for (;;) {
		const int code = c->f->event_query(event);
		if (code != RT_NOT_READY)
			return rt_failed(c, code, "waiting for it", e);
		look(c);
		TRY(in_time(c, began, e));
		const int64_t waited = clock_now() - began, pause = waited / 16;
		if (waited < SPIN_NS)
			sched_yield();
		else /* each sleep is short against the time waited so far */
			nanosleep(&(struct timespec){ 0, pause < LONGEST_NS ? pause : LONGEST_NS },
				  NULL);
	}
}

/* Work has been put on the compute stream. Drivers let calls wait inside them when too much is
 * queued, where no limit holds: so when there is no room for another mark, the oldest must have
 * happened. */
int rt_queued(struct rt *c, double flops, struct err *e)
{
	c->launched++;
	c->flops += flops;
	if (++c->unmarked < RT_MARK_EVERY && c->flops < RT_MARK_FLOPS)
		return 0;
	c->unmarked = 0;
	c->flops = 0;
	if (c->marks == RT_MARKS) {
		TRY(rt_wait(c, c->mark[c->first_mark], e));
		look(c);
	}
	const int last = (c->first_mark + c->marks) % RT_MARKS;
	TRY(rt_failed(c, c->f->event_record(c->mark[last], c->compute), "queueing", e));
	c->mark_at[last] = c->launched;
	c->marks++;
	return 0;
}

int rt_under_way(struct rt *c, struct err *e)
{
	TRY(rt_enter(c, e));
	if (c->finished == c->launched)
		return 0;
	if (c->busy_at != c->launched) {
		TRY(rt_failed(c, c->f->event_record(c->busy_event, c->compute), "queueing", e));
		c->busy_at = c->launched;
		c->busy_since = clock_now();
	}
	const int code = c->f->event_query(c->busy_event);
	if (code != RT_NOT_READY) {
		TRY(rt_failed(c, code, "waiting for it", e));
		c->finished = c->busy_at;
		return 0;
	}
	look(c);
	TRY(in_time(c, c->busy_since, e));
	return 1;
}
