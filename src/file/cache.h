/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - the cache: files that need not be fetched or measured again. */
#ifndef HS_FILE_CACHE_H
#define HS_FILE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* The folder of one kind of cached file ("weights", "links"); it is not created: GIVEN/part, or
 * with NULL $XDG_CACHE_HOME/heteroshard/part, or ~/.cache/heteroshard/part. */
int cache_folder(const char *given, const char *part, char *out, size_t cap, struct err *e);

/* Whether the folder may be used: it is made when it is missing (`make`; private to the user), and
 * a folder that another user owns or may write is not used: the log says so once. What is inside
 * such a folder could be anybody's. */
bool cache_ready(const char *dir, bool make);
/* The same question for a file in it, in silence for one that is missing. */
bool cache_file_ready(const char *path);

/* While it is held (a descriptor; -1: that failed), no process removes files from the folder. */
int cache_hold(const char *dir);
/* Releases it; the last process to do so removes files below `dir` (DIR/xx/name), the longest
 * unused first, until at most `limit` bytes are left. 0: no limit. */
void cache_release(const char *dir, int held, uint64_t limit);
/* Marks the file as used now. */
void cache_used(const char *path);

#endif
