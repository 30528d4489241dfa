/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h - a growing byte buffer (text or binary), always followed by a NUL that is not counted.
 *
 * `struct buf b = BUF_INIT` is empty and owns nothing. Adding to a buffer whose memory ran out does
 * nothing and sets `failed`: the caller checks once, at the end, with buf_ok(). */
#ifndef HS_BASE_BUF_H
#define HS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct buf {
	char *p;
	size_t n, cap;
	bool failed;
};

#define BUF_INIT                                                                                   \
	{                                                                                          \
		"", 0, 0, false                                                                    \
	}

void buf_init(struct buf *b);
void buf_release(struct buf *b); /* gives the memory back and leaves an empty buffer */
void buf_reset(struct buf *b);   /* empties, keeps the memory */
char *buf_detach(struct buf *b); /* the caller owns the bytes (mem_free); NULL if memory ran out */
void buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_ok(const struct buf *b, struct err *e); /* 0 or ERR_NOMEM */
/* The next line of a text, cut off at its newline; NULL at the end. *rest: what follows. */
char *buf_line(char **rest);

/* A whole file. Refuses files larger than `limit` bytes (0: 1 GiB). */
int buf_read_file(struct buf *b, const char *path, uint64_t limit, struct err *e);

#endif
