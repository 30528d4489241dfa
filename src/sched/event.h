/* SPDX-License-Identifier: Apache-2.0 */
/* event.h - a queue of events in order of time, of equal times the lower number first (a binary
 * heap). */
#ifndef HS_SCHED_EVENT_H
#define HS_SCHED_EVENT_H

#include <stdbool.h>
#include <stddef.h>

struct event {
	double at;
	int who;
	unsigned version; /* the owner's: an event of an older one means nothing */
};

/* Zero-initialised; the memory is kept until events_release(). */
struct events {
	struct event *heap;
	size_t n, cap;
	bool nomem; /* an event was lost */
};

void events_push(struct events *q, double at, int who, unsigned version);
struct event events_pop(struct events *q); /* n > 0 */
void events_release(struct events *q);

#endif
