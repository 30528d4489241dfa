/* SPDX-License-Identifier: Apache-2.0 */
/* os_calls.h - calls that Linux has and POSIX has not: sockets and pipes that are closed on exec
 * from the beginning, waits by the steady clock, two names swapped in one step, memory whose size
 * nobody can change. Linux's are in os_calls_linux.c; in os_calls_other.c they are made of several
 * calls of POSIX, or answer that they cannot; os_calls_gnu.c has what macOS alone names otherwise.
 *
 * Without them a descriptor can reach a program that another thread starts at the same moment, and
 * stays open there until that program ends. */
#ifndef HS_BASE_OS_CALLS_H
#define HS_BASE_OS_CALLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

/* ---- descriptors; all are closed on exec. -1 with errno ---- */

enum os_waits { OS_WAITS, OS_NEVER_WAITS /* O_NONBLOCK */ };

int os_socket(int family, int type, enum os_waits waits);
int os_accept(int listener, struct sockaddr *from_p, socklen_t *n_p, enum os_waits waits);
int os_pipe(int end_p[2]); /* both ends wait */
/* The user and the process at the other end of a connected Unix socket. */
bool os_peer(int fd, uid_t *uid_p, pid_t *pid_p);

/* ---- files ---- */

/* What has the one name has the other one afterwards, in one step; false: the system or this file
 * system cannot, and nothing was changed. */
bool os_swap_names(const char *a, const char *b);
/* Whether other machines may see the file system of an open file too. */
bool os_is_on_network(int fd);

static inline struct timespec os_modified(const struct stat *s)
{
#ifdef __APPLE__
	return s->st_mtimespec;
#else
	return s->st_mtim;
#endif
}

static inline struct timespec os_used(const struct stat *s)
{
#ifdef __APPLE__
	return s->st_atimespec;
#else
	return s->st_atim;
#endif
}

/* A stream whose text goes to `write`, which returns how much it took; NULL: memory is out. */
typedef ssize_t os_writer(void *ctx, const char *text, size_t n);
FILE *os_stream(void *ctx, os_writer *write);

/* ---- memory ---- */

/* The descriptor of n bytes that have no name and cannot get another size; -1: there are none to be
 * had. And whether a descriptor that came from elsewhere is such memory, so that reading it cannot
 * fail. */
int os_fixed_memory(uint64_t n);
bool os_is_fixed_memory(int fd, uint64_t n);
/* The n bytes at p, a page's beginning of memory that others share, mapped once more; NULL. */
void *os_map_again(void *p, size_t n);

/* qsort() with a context for `by`; each system has its own order of arguments for that. */
typedef int os_order(const void *a, const void *b, void *ctx);
void os_sort(void *v, size_t n, size_t size, os_order *by, void *ctx);

/* ---- threads, and the processor ---- */

/* A condition whose timed waits go by the steady clock (clock.h), and such a wait: false when the
 * moment `until` has come. */
void os_cond_init(pthread_cond_t *c);
bool os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until);
/* The calling thread, as `top -H` shows it: at most 15 characters. */
void os_name_thread(const char *name);

/* ARM's instructions for CRC-32C, and for AES with its multiplication. */
bool os_arm_has_crc(void);
bool os_arm_has_aes(void);

#endif
