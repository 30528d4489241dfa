/* SPDX-License-Identifier: Apache-2.0 */
/* watch_epoll.c - see watch.h: Linux. */
#include "net/watch.h"

#if defined(__linux__) && !defined(HS_OS_OTHER)
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

enum { TURN = 64 };

struct watch {
	int set, wake; /* epoll; eventfd, in the set with this watch as its owner */
	const struct watch *inner;
};

static void tell(const struct watch *w, int how, int fd, uint32_t what, void *of)
{
	struct epoll_event ev = { .events = what, .data.ptr = of };
	epoll_ctl(w->set, how, fd, &ev);
}

struct watch *watch_new(void)
{
	struct watch *w = mem_zalloc(sizeof *w);
	if (!w) {
		errno = ENOMEM;
		return NULL;
	}
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->set = epoll_create1(EPOLL_CLOEXEC);
	if (w->wake < 0 || w->set < 0) {
		int errnum = errno;
		watch_free(w);
		errno = errnum;
		return NULL;
	}
	tell(w, EPOLL_CTL_ADD, w->wake, EPOLLIN, w);
	return w;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	if (w->wake >= 0)
		close(w->wake);
	if (w->set >= 0)
		close(w->set);
	mem_free(w);
}

void watch_set(struct watch *w, int fd, unsigned what, void *of)
{
	const uint32_t events = (what & WATCH_IN ? EPOLLIN : 0) |
				(what & WATCH_OUT ? EPOLLOUT : 0) |
				(what & WATCH_END ? EPOLLRDHUP : 0);
	struct epoll_event ev = { .events = events, .data.ptr = of };
	if (epoll_ctl(w->set, EPOLL_CTL_MOD, fd, &ev) < 0 && errno == ENOENT)
		tell(w, EPOLL_CTL_ADD, fd, events, of);
}

void watch_drop(struct watch *w, int fd) { epoll_ctl(w->set, EPOLL_CTL_DEL, fd, NULL); }

void watch_inside(struct watch *w, struct watch *inner, bool yes)
{
	watch_set(w, inner->set, yes ? WATCH_IN : 0, inner);
}

int watch_wait(struct watch *w, struct watch_event *event, int most, int ms)
{
	struct epoll_event ev[TURN];
	int n = epoll_wait(w->set, ev, most < TURN ? most : TURN, ms), count = 0;
	for (int i = 0; i < n; i++) {
		uint64_t times;
		if (ev[i].data.ptr == w) {
			times = (uint64_t)read(w->wake, &times, sizeof times);
			continue;
		}
		const uint32_t is = ev[i].events;
		event[count].what = (is & EPOLLIN ? WATCH_IN : 0) |
				    (is & EPOLLOUT ? WATCH_OUT : 0) |
				    (is & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? WATCH_END : 0);
		event[count++].of = ev[i].data.ptr;
	}
	return count;
}

void watch_wake(struct watch *w)
{
	const uint64_t one = 1;
	while (write(w->wake, &one, sizeof one) < 0 && errno == EINTR)
		;
}
#endif
