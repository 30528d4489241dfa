/* SPDX-License-Identifier: Apache-2.0 */
/* rt_queue.c - see rt.h: errors of the driver, waiting for the device, how much may be queued. */
#include "dev/rt.h"

#include "base/clock.h"
#include "base/err.h"

#include <sched.h>
#include <time.h>

#define SPIN_NS 50000 /* a wait this short is spun away */

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
		current = c->id;
	}
	return 0;
}

/* ERR_DEVICE when it has been waited for longer than the limit. */
static int in_time(struct rt *c, int64_t waited, struct err *e)
{
	if (!c->limit || waited <= c->limit)
		return 0;
	c->lost = true;
	return err_set(e, ERR_DEVICE,
		       "%s does not answer: nothing has come back for %.1f s (HS_DEVICE_TIMEOUT); "
		       "its last work was "
		       "%s; the device hangs, or is gone",
		       c->label, clock_seconds(waited), c->doing ? c->doing : "none");
}

int rt_wait(struct rt *c, void *event, struct err *e)
{
	const int64_t began = clock_now();
	for (long pause = 10000;;) {
		const int code = c->f->event_query(event);
		const int64_t waited = clock_now() - began;
		if (code != RT_NOT_READY)
			return rt_failed(c, code, "waiting for it", e);
		TRY(in_time(c, waited, e));
		if (waited < SPIN_NS) {
			sched_yield();
			continue;
		}
		nanosleep(&(struct timespec){ 0, pause }, NULL);
		if (pause < 200000)
			pause *= 2;
	}
}

/* Work has been put on the compute stream. Drivers let calls wait inside them when too much is
 * queued, where no limit holds: so the work of the mark before the last one must have run. */
int rt_queued(struct rt *c, struct err *e)
{
	c->launched++;
	if (c->launched % RT_MARK)
		return 0;
	void *mark = c->mark[c->launched / RT_MARK % 2];
	if (c->launched > RT_MARK * 2) {
		TRY(rt_wait(c, mark, e));
		if (c->finished < c->launched - RT_MARK * 2)
			c->finished = c->launched - RT_MARK * 2;
	}
	return rt_failed(c, c->f->event_record(mark, c->compute), "queueing", e);
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
	TRY(in_time(c, clock_now() - c->busy_since, e));
	return 1;
}
