/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.h - files and folders that are complete or absent: written beside their place,
 * synced, renamed.
 *
 * A crash or a full disk leaves the old content unchanged, and at worst a "*.tmp" beside it, which
 * the next write replaces. When several processes write the same file, they do so one after the
 * other, and the last one stays. */
#ifndef HS_FILE_ATOMIC_H
#define HS_FILE_ATOMIC_H

#include <stddef.h>
#include <stdint.h>

struct err;

struct atomic_file {
	int fd;
	char *path, *tmp;
};

int atomic_begin(const char *path, struct atomic_file *f_p, struct err *e);
int atomic_write(struct atomic_file *f, const void *p, size_t n, struct err *e);
/* fsync, rename, fsync the folder; releases f in any case */
int atomic_commit(struct atomic_file *f, struct err *e);
/* removes the temporary file; releases f */
void atomic_abort(struct atomic_file *f);

int atomic_write_file(const char *path, const void *p, size_t n, struct err *e);
/* DIR/NAME */
int atomic_write_in(const char *dir, const char *name, const void *p, size_t n, struct err *e);

/* A folder: make PATH.tmp (an old one is removed), fill it with files, then commit renames it to
 * PATH (which must not exist). */
int atomic_dir_begin(const char *path, char **tmp_p, struct err *e); /* *tmp_p: mem_free */
/* syncs every file in it, renames, syncs the parent */
int atomic_dir_commit(const char *path, const char *tmp, struct err *e);
/* the same; what is at PATH is removed once the new folder is in its place */
int atomic_dir_replace(const char *path, const char *tmp, struct err *e);
/* with parents; an existing folder is fine */
int dir_make(const char *path, struct err *e);
/* The same where what is inside should not be read by everybody: a folder of results (new: for the
 * user, and for the group as far as the umask allows; its parents as usual), and one of this
 * program's own (new ones, parents too, only for the user). An existing one stays as it is. */
int dir_make_result(const char *path, struct err *e);
int dir_make_private(const char *path, struct err *e);
/* with everything in it; missing is fine; never follows links */
int dir_remove(const char *path, struct err *e);

#endif
