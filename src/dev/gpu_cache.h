/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_cache.h - compiled kernels kept on disk, for all backends that compile text: files
 * $XDG_CACHE_HOME/heteroshard/kernels/KEY.EXT (else ~/.cache/...). KEY is a hash of all that
 * decides what the code is; a file opens with a hash of the rest, so a damaged one is seen, and is
 * written beside and renamed. Without a folder that can be written there is no cache, and no error.
 * Files may be deleted at any time. */
#ifndef HS_DEV_GPU_CACHE_H
#define HS_DEV_GPU_CACHE_H

#include <stdbool.h>
#include <stddef.h>

struct buf;

#define GPU_KEY 33 /* of a key, with its NUL */

/* `part`: device, driver, compiler, options; `text`: what is compiled. */
void gpu_cache_key(const char *const *part, size_t nparts, const char *text, size_t n,
		   char key[GPU_KEY]);
/* Appends the code to `b`; false when it is not there or damaged. */
bool gpu_cache_get(const char *key, const char *ext, struct buf *b);
void gpu_cache_put(const char *key, const char *ext, const void *p, size_t n);
/* Puts what a compiler said where it can be read, and makes one line for an error message: its
 * first lines, and the path of the rest. */
void gpu_cache_log(const char *key, const char *log, char *line, size_t nline);

#endif
