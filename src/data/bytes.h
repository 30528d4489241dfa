/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - the bytes of a file by place: of the file itself where it is not packed, else of what
 * was unpacked into memory. */
#ifndef HS_DATA_BYTES_H
#define HS_DATA_BYTES_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct bytes {
	const char *path; /* borrowed */
	int fd;           /* -1: in memory */
	uint8_t *mem;
	uint64_t size;
};

/* Unpacks gzip and zstd, up to `most` bytes. */
int bytes_open(struct bytes *b, const char *path, uint64_t most, struct err *e);
void bytes_close(struct bytes *b);
/* [at, at+n) must lie inside. */
int bytes_read(const struct bytes *b, uint64_t at, void *dst, uint64_t n, struct err *e);
/* Puts in place of the file what a raw deflate stream of `packed` bytes at `at` unpacks to, which
 * must be `n` bytes. */
int bytes_inflate(struct bytes *b, uint64_t at, uint64_t packed, uint64_t n, struct err *e);

#endif
