/* SPDX-License-Identifier: Apache-2.0 */
/* lock.h - a file that says which process works in a folder, and keeps others out meanwhile.
 *
 * The kernel's lock (flock) decides; the text {"host", "pid", "started"} is for messages. When a
 * process dies the kernel lets go, and the file that stays is stale: whoever takes it next is told.
 * On file systems shared by several machines the kernel's lock may not reach the other ones; there
 * a file of another host is an error that says how to go on. */
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

/* ERR_USAGE, naming the process, when another one has it. stale[cap]: who left it behind, "" when
 * nobody did. */
int file_lock_take(const char *path, struct file_lock *l_p, char *stale, size_t cap, struct err *e);
/* Removes the file. */
void file_lock_release(struct file_lock *l);

#endif
