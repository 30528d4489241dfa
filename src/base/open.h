/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - the only ways in which files are opened: what lies at a path may have been put there by
 * somebody else.
 *
 * Only regular files are opened, and the kernel is asked about the open file, so that nobody can
 * change the answer. Nothing here waits: a pipe at the path is refused (but see open_stream()), as
 * are devices, sockets and folders. Links are followed when reading, never when writing. All
 * descriptors are closed on exec. */
#ifndef HS_BASE_OPEN_H
#define HS_BASE_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct err;

/* For reading. ERR_IO when the system refuses, ERR_INPUT when it is no regular file, or what Git
 * LFS leaves in the place of one. size_p may be NULL. */
int open_read(const char *path, int *fd_p, uint64_t *size_p, struct err *e);
/* The same for data that is read once from its beginning, where people also name a pipe. One that
 * nobody has opened for writing is empty. */
int open_stream(const char *path, int *fd_p, struct err *e);

enum open_write {
	OPEN_APPEND, /* behind what is there */
	OPEN_EMPTY,  /* what is there is removed */
	OPEN_NEW,    /* nothing may be there; -1 and EEXIST */
	OPEN_LOCK,   /* also for reading; what is there stays */
};
/* For writing, created with `mode` less the umask where it is missing. A file that is there must be
 * regular and have no other name (a hard link would lead into another file). -1 with errno; ELOOP:
 * a link; EMLINK: it has another name; EINVAL: not regular. */
int open_write(const char *path, enum open_write how, unsigned mode);
/* The same with the error written. */
int open_write_err(const char *path, enum open_write how, unsigned mode, int *fd_p, struct err *e);

/* Whether nobody but this user (and root) can change what is at `path`, a file or a folder: *why_p
 * says what speaks against it, NULL where nothing does. What is missing is nobody's: true. Links
 * are followed. */
bool open_only_mine(const char *path, const char **why_p);

#endif
