/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - time: a steady clock for durations, a wall clock for stamps, the processor's own.
 * Units: nanoseconds. */
#ifndef HS_BASE_CLOCK_H
#define HS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t clock_wall(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Of the processor, by the calling thread: pauses of a throttled process are not in it. */
static inline int64_t clock_processor(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_seconds(int64_t ns) { return (double)ns * 1e-9; }

#endif
