/* SPDX-License-Identifier: Apache-2.0 */
/* watch_poll.c - see watch.h: systems other than Linux. A hub has tens of descriptors, for which
 * poll() is quick enough. */
#include "net/watch.h"

#if !defined(__linux__) || defined(HS_OS_OTHER)
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os_calls.h"

#ifndef POLLRDHUP
#define POLLRDHUP POLLHUP /* which is reported anyhow; an end that is not is found when reading */
#endif

struct watch {
	struct pollfd *fd; /* the first is the end of `wake` that is read */
	void **of;
	size_t n, cap_fd, cap_of;
	int wake[2];
	struct watch *inner;
	bool inside;
	/* A turn begins behind the last one's end, so that the first do not take all turns. */
	size_t from;
	/* for watch_wait(): this set's, then those of the inner one */
	struct pollfd *both;
	size_t cap_both;
};

static bool add(struct watch *w, int fd, short what, void *of)
{
	if (!mem_grow(&w->fd, &w->cap_fd, w->n + 1, sizeof *w->fd) ||
	    !mem_grow(&w->of, &w->cap_of, w->n + 1, sizeof *w->of))
		return false;
	w->fd[w->n] = (struct pollfd){ fd, what, 0 };
	w->of[w->n++] = of;
	return true;
}

struct watch *watch_new(void)
{
	struct watch *w = mem_zalloc(sizeof *w);
	if (!w) {
		errno = ENOMEM;
		return NULL;
	}
	w->wake[0] = w->wake[1] = -1;
	if (os_pipe(w->wake) < 0 || !add(w, w->wake[0], POLLIN, NULL)) {
		int errnum = errno ? errno : ENOMEM;
		watch_free(w);
		errno = errnum;
		return NULL;
	}
	fcntl(w->wake[0], F_SETFL, O_NONBLOCK);
	fcntl(w->wake[1], F_SETFL, O_NONBLOCK);
	return w;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	for (int i = 0; i < 2; i++)
		if (w->wake[i] >= 0)
			close(w->wake[i]);
	mem_free(w->fd);
	mem_free(w->of);
	mem_free(w->both);
	mem_free(w);
}

static size_t find(const struct watch *w, int fd)
{
	size_t i = 1;
	while (i < w->n && w->fd[i].fd != fd)
		i++;
	return i;
}

void watch_set(struct watch *w, int fd, unsigned what, void *of)
{
	const size_t i = find(w, fd);
	const short events =
		(short)((what & WATCH_IN ? POLLIN : 0) | (what & WATCH_OUT ? POLLOUT : 0) |
			(what & WATCH_END ? POLLRDHUP : 0));
	if (i == w->n) {
		add(w, fd, events, of);
		return;
	}
	w->fd[i].events = events;
	w->of[i] = of;
}

void watch_drop(struct watch *w, int fd)
{
	const size_t i = find(w, fd);
	if (i == w->n)
		return;
	w->n--;
	w->fd[i] = w->fd[w->n];
	w->of[i] = w->of[w->n];
}

void watch_inside(struct watch *w, struct watch *inner, bool yes)
{
	w->inner = inner;
	w->inside = yes;
}

/* All that a wait looks at; their number. When memory is out, the set's own alone. */
static size_t gather(struct watch *w)
{
	const size_t more = w->inner && w->inside ? w->inner->n : 0;
	if (!more || !mem_grow(&w->both, &w->cap_both, w->n + more, sizeof *w->both))
		return 0;
	for (size_t i = 0; i < w->n + more; i++)
		w->both[i] = i < w->n ? w->fd[i] : w->inner->fd[i - w->n];
	return w->n + more;
}

static unsigned what_of(short is)
{
	return (is & POLLIN ? WATCH_IN : 0u) | (is & POLLOUT ? WATCH_OUT : 0u) |
	       (is & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL) ? WATCH_END : 0u);
}

int watch_wait(struct watch *w, struct watch_event *event, int most, int ms)
{
	const size_t all = gather(w);
	const struct pollfd *is = all ? w->both : w->fd;
	int count = 0;
	char said[64];
	if (poll(all ? w->both : w->fd, (nfds_t)(all ? all : w->n), ms) <= 0)
		return 0;
	if (is[0].revents)
		while (read(w->wake[0], said, sizeof said) > 0)
			;
	for (size_t i = w->n; i < all; i++)
		if (is[i].revents) {
			event[count++] = (struct watch_event){ WATCH_IN, w->inner };
			break;
		}
	for (size_t k = 1; k < w->n && count < most; k++) {
		const size_t i = 1 + (w->from + k) % (w->n - 1);
		if (!is[i].revents)
			continue;
		event[count++] = (struct watch_event){ what_of(is[i].revents), w->of[i] };
		if (count == most)
			w->from = i - 1;
	}
	return count;
}

void watch_wake(struct watch *w)
{
	while (write(w->wake[1], "", 1) < 0 && errno == EINTR)
		;
}
#endif
