/* SPDX-License-Identifier: Apache-2.0 */
/* lock.h - a lock file: it names the process that works in a folder, and excludes others meanwhile.
 *
 * The kernel's lock (flock) decides; the text {"host", "pid", "started"} is for messages. When a
 * process dies the kernel releases the lock, and the remaining file is stale: the next process that
 * takes the lock is given its text. On file systems that several machines share, the kernel's lock
 * may not hold on the others; there the file of another host is an error that says what to do. */
#ifndef HS_FILE_LOCK_H
#define HS_FILE_LOCK_H

#include <stddef.h>

struct err;

struct file_lock {
	int fd; /* -1: not taken */
	char *path;
};

#define FILE_LOCK_INIT                                                                             \
	{                                                                                          \
		-1, NULL                                                                           \
	}

/* ERR_USAGE, naming the process, when another one has it. stale[cap]: the process that left a stale
 * file, "" when there was none. */
int file_lock_take(const char *path, struct file_lock *l_p, char *stale, size_t cap, struct err *e);
/* Removes the file. */
void file_lock_release(struct file_lock *l);

#endif
