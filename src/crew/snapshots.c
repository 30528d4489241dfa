/* SPDX-License-Identifier: Apache-2.0 */
/* snapshots.c - see snapshots.h. */
#include "crew/snapshots.h"

#include "base/clock.h"
#include "base/os.h"

#include <math.h>

enum { COST = 50 /* at most one part in so many of the time */ };
static const double guessed_rate = 100e6; /* bytes a second, before the first one is measured */
static const double least = 1;            /* seconds from one to the next */

enum config_snapshot snapshots_place(const struct config *c, uint64_t bytes)
{
	uint64_t all, left;
	if (c->snapshot_to != SNAPSHOT_AUTO)
		return (enum config_snapshot)c->snapshot_to;
	os_memory("", &all, &left);
	return !all || bytes <= left / 4 ? SNAPSHOT_MEMORY : SNAPSHOT_DISK;
}

void snapshots_init(struct snapshots *s, const struct config *c, uint64_t bytes, uint64_t step)
{
	*s = (struct snapshots){ .to = snapshots_place(c, bytes),
				 .steps = (uint64_t)c->snapshot_steps,
				 .bytes = bytes,
				 .cost = (double)bytes / guessed_rate,
				 .last = clock_now(),
				 .at = step };
}

double snapshots_interval(const struct snapshots *s) { return fmax(least, COST * s->cost); }

bool snapshots_due(const struct snapshots *s, uint64_t step)
{
	if (s->to == SNAPSHOT_OFF || step <= s->at)
		return false;
	if (s->steps)
		return step - s->at >= s->steps;
	return clock_seconds(clock_now() - s->last) >= snapshots_interval(s);
}

void snapshots_taken(struct snapshots *s, uint64_t step, int64_t began)
{
	s->last = clock_now();
	s->cost = clock_seconds(s->last - began);
	s->at = step;
}
