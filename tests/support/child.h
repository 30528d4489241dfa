/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - processes that a test begins for a part of its own code, and what the kernel says of a
 * process. Failures end the test. */
#ifndef HS_TESTS_SUPPORT_CHILD_H
#define HS_TESTS_SUPPORT_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "net/net.h"

/* Waits for a text, then does its work with it. It begins before this process has threads, and may
 * have its own. It ends with this process. */
struct child {
	pid_t pid;
	int fd;
};

/* `uid` 0: stays the same user. */
struct child child_new(void (*what)(const char *text), uid_t uid);
void child_tell(struct child *c, const char *text); /* less than NET_ADDRESS bytes */
int child_end(struct child *c);                     /* its exit status; 1000: ended by a signal */
int child_run(struct child *c, const char *text);   /* both */

/* To be called first by main(): the program begins again with one OpenMP thread, where the
 * environment names no number; libgomp reads it when it is loaded. Members that are threads of one
 * process, with several OpenMP threads each, would wait for each other at every loop. */
void one_thread_each(char **argv);

/* Of /proc/PID/status, in KiB: "VmHWM", the most so far; "VmRSS", now. */
long memory_kib(pid_t pid, const char *what);
/* false: a sanitizer's memory would be counted too */
bool memory_counts(void);

#endif
