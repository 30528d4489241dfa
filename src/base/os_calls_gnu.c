/* SPDX-License-Identifier: Apache-2.0 */
/* os_calls_gnu.c - see os_calls.h: what every system but macOS has under the same names. */
#include "base/os_calls.h"

#ifndef __APPLE__
#include <errno.h>
#include <stdlib.h>

FILE *os_stream(void *ctx, os_writer *write)
{
	return fopencookie(ctx, "w", (cookie_io_functions_t){ .write = write });
}

void os_sort(void *v, size_t n, size_t size, os_order *by, void *ctx)
{
	qsort_r(v, n, size, by, ctx);
}

void os_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t a;
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
}

bool os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until)
{
	struct timespec t = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
	return pthread_cond_timedwait(c, lock, &t) != ETIMEDOUT;
}
#endif
