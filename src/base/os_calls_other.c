/* SPDX-License-Identifier: Apache-2.0 */
/* os_calls_other.c - see os_calls.h: systems other than Linux. What POSIX lacks too is there for
 * macOS, which has it under names of its own. */
#include "base/os_calls.h"

#if !defined(__linux__) || defined(HS_OS_OTHER)
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <sys/mount.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/mem.h"
#endif

/* -1 stays -1 with its errno. */
static int settle(int fd, enum os_waits waits)
{
	if (fd < 0)
		return fd;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	/* a socket that was accepted may have its listener's flags, or not */
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, waits == OS_WAITS ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
#ifdef SO_NOSIGPIPE
	setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){ 1 }, sizeof(int));
#endif
	return fd;
}

int os_socket(int family, int type, enum os_waits waits)
{
	return settle(socket(family, type, 0), waits);
}

int os_accept(int listener, struct sockaddr *from, socklen_t *n, enum os_waits waits)
{
	return settle(accept(listener, from, n), waits);
}

int os_pipe(int end[2])
{
	if (pipe(end) < 0)
		return -1;
	fcntl(end[0], F_SETFD, FD_CLOEXEC);
	fcntl(end[1], F_SETFD, FD_CLOEXEC);
	return 0;
}

bool os_peer(int fd, uid_t *uid_p, pid_t *pid_p)
{
#if defined(__APPLE__)
	gid_t group;
	socklen_t n = sizeof *pid_p;
	return getpeereid(fd, uid_p, &group) == 0 &&
	       getsockopt(fd, SOL_LOCAL, LOCAL_PEERPID, pid_p, &n) == 0 && n == sizeof *pid_p;
#elif defined(SO_PEERCRED)
	struct ucred c;
	socklen_t n = sizeof c;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0)
		return false;
	*uid_p = c.uid;
	*pid_p = c.pid;
	return true;
#else
	(void)fd;
	(void)uid_p;
	(void)pid_p;
	return false; /* unknown is another user */
#endif
}

bool os_swap_names(const char *a, const char *b)
{
#if defined(__APPLE__)
	return !renamex_np(a, b, RENAME_SWAP);
#else
	(void)a;
	(void)b;
	return false;
#endif
}

bool os_is_on_network(int fd)
{
#if defined(__APPLE__)
	struct statfs s;
	return !fstatfs(fd, &s) && !(s.f_flags & MNT_LOCAL);
#else
	(void)fd;
	return true; /* the careful answer */
#endif
}

#if defined(__APPLE__)
struct writer {
	os_writer *write;
	void *ctx;
};

static int write_some(void *w, const char *text, int n)
{
	const struct writer *to = w;
	return (int)to->write(to->ctx, text, (size_t)n);
}

static int close_writer(void *w)
{
	mem_free(w);
	return 0;
}

FILE *os_stream(void *ctx, os_writer *write)
{
	struct writer *w = mem_alloc(sizeof *w);
	if (!w)
		return NULL;
	*w = (struct writer){ write, ctx };
	FILE *f = funopen(w, NULL, write_some, NULL, close_writer);
	if (!f)
		mem_free(w);
	return f;
}
#endif

#if defined(__APPLE__)
struct order {
	os_order *by;
	void *ctx;
};

static int compare(void *o, const void *a, const void *b)
{
	const struct order *at = o;
	return at->by(a, b, at->ctx);
}

void os_sort(void *v, size_t n, size_t size, os_order *by, void *ctx)
{
	qsort_r(v, n, size, &(struct order){ by, ctx }, compare);
}
#endif

int os_fixed_memory(uint64_t n)
{
	(void)n;
	return -1;
}

bool os_is_fixed_memory(int fd, uint64_t n)
{
	(void)fd;
	(void)n;
	return false;
}

void *os_map_again(void *p, size_t n)
{
	(void)p;
	(void)n;
	return NULL;
}

#if defined(__APPLE__)
void os_cond_init(pthread_cond_t *c) { pthread_cond_init(c, NULL); }

bool os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until)
{
	int64_t left = until - clock_now();
	struct timespec t = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
	return left > 0 && pthread_cond_timedwait_relative_np(c, lock, &t) != ETIMEDOUT;
}
#endif

void os_name_thread(const char *name)
{
#if defined(__APPLE__)
	pthread_setname_np(name);
#else
	(void)name;
#endif
}

/* Every processor of Apple's that runs macOS has both. */
bool os_arm_has_crc(void)
{
#if defined(__APPLE__)
	return true;
#else
	return false;
#endif
}

bool os_arm_has_aes(void) { return os_arm_has_crc(); }
#endif
