/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - a set of descriptors for which one thread waits, and which another thread can wake:
 * epoll on Linux (watch_epoll.c), poll elsewhere (watch_poll.c). What is reported stays reported
 * until it was dealt with. All calls but watch_wake() are the waiting thread's. */
#ifndef HS_NET_WATCH_H
#define HS_NET_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch;

enum {
	WATCH_IN = 1,  /* there is something to read, or a connection to accept */
	WATCH_OUT = 2, /* there is room to write, or the connection came up or failed */
	WATCH_END = 4, /* the other side has closed; reported also when it broke, asked or not */
};

struct watch_event {
	unsigned what;
	void *of;
};

/* NULL with errno. */
struct watch *watch_new(void);
void watch_free(struct watch *w); /* NULL is allowed */

/* From now on `fd` is watched for `what`, and its events are `of`'s; again: for something else.
 * When memory is out it is not watched. */
void watch_set(struct watch *w, int fd, unsigned what, void *of);
/* Before it is closed: a child that is just being started may have it too. */
void watch_drop(struct watch *w, int fd);
/* Whether the events of `inner`, another set, end the waits for `w`: as an event of `inner` itself,
 * whose own events watch_wait(inner, ..., 0) then gives. One set can be inside another one. */
void watch_inside(struct watch *w, struct watch *inner, bool yes);

/* Waits until something happened, at most `ms` milliseconds (-1: for ever), and returns how many
 * events there are, at most `most`. Also returns when it was woken. */
int watch_wait(struct watch *w, struct watch_event *event_p, int most, int ms);
/* From any thread: the wait that goes on, or the next one, ends. */
void watch_wake(struct watch *w);

#endif
