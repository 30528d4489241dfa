/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - removes lines from a text file that a run appends to (metrics, samples): a run that
 * goes on from a checkpoint computes the steps after it again. */
#ifndef HS_FILE_LINES_H
#define HS_FILE_LINES_H

#include <stddef.h>

struct buf;
struct err;

/* A line without its newline: 1 when it stays, 0 when it goes, < 0 for an error. */
typedef int (*lines_fn)(void *ctx, const char *line, size_t n, struct err *e);

/* Appends the whole lines of a text that stay to `kept`. */
int lines_copy(const struct buf *old, lines_fn stays, void *ctx, struct buf *kept, struct err *e);

/* Calls `stays` for each whole line in order and removes those that go, and a last line without a
 * newline. A file at `path` that is missing is fine. The new text replaces the file, or where there
 * is no room for another file, its bytes. Refuses files larger than 1 GiB. */
int lines_keep(const char *path, lines_fn stays, void *ctx, struct err *e);

#endif
