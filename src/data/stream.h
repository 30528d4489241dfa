/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - the bytes of a data file, unpacked where they are packed with gzip or zstd (by their
 * first bytes, whatever the file is called). Memory does not depend on the file: a window of zstd
 * may have at most 128 MiB. */
#ifndef HS_DATA_STREAM_H
#define HS_DATA_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct stream;

int stream_open(const char *path, struct stream **s_p, struct err *e);
void stream_close(struct stream *s); /* NULL is allowed */
/* At most `n` bytes: *got_p is 0 only at the end. A file that is cut off inside packed data is an
 * error. */
int stream_read(struct stream *s, void *p, size_t n, size_t *got_p, struct err *e);
/* Whether the name ends so, with or without .gz or .zst behind it. */
bool stream_ends(const char *path, const char *ending);

#endif
