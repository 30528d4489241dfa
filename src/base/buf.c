/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - see buf.h. */
#include "base/buf.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void buf_init(struct buf *b) { *b = (struct buf)BUF_INIT; }

void buf_release(struct buf *b)
{
	if (b->cap)
		mem_free(b->p);
	buf_init(b);
}

void buf_reset(struct buf *b)
{
	b->n = 0;
	b->failed = false;
	if (b->cap)
		b->p[0] = 0;
}

char *buf_line(char **rest)
{
	char *line = *rest;
	if (!line || !*line)
		return NULL;
	*rest = strchr(line, '\n');
	if (*rest)
		*(*rest)++ = 0;
	return line;
}

char *buf_detach(struct buf *b)
{
	if (b->failed) {
		buf_release(b);
		return NULL;
	}
	char *p = b->cap ? b->p : mem_strdup("");
	buf_init(b);
	return p;
}

void buf_reserve(struct buf *b, size_t more)
{
	uint64_t need;
	if (b->failed || !add_ok(b->n, more, &need) || !add_ok(need, 1, &need)) {
		b->failed = true;
		return;
	}
	if (need <= b->cap)
		return;
	char *p = b->cap ? b->p : NULL;
	size_t cap = b->cap;
	if (!mem_grow(&p, &cap, need, 1)) {
		b->failed = true;
		return;
	}
	b->p = p;
	b->cap = cap;
	b->p[b->n] = 0;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	buf_reserve(b, n);
	if (b->failed || !n)
		return;
	memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = 0;
}

void buf_adds(struct buf *b, const char *s) { buf_add(b, s, strlen(s)); }
void buf_addc(struct buf *b, char c) { buf_add(b, &c, 1); }

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		b->failed = true;
	else
		buf_reserve(b, (size_t)n);
	if (!b->failed && n > 0) {
		vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
		b->n += (size_t)n;
	}
	va_end(again);
}

int buf_ok(const struct buf *b, struct err *e)
{
	return b->failed
		       ? err_set(e, ERR_NOMEM, "out of memory: a text of more than %zu bytes", b->n)
		       : 0;
}

int buf_read_file(struct buf *b, const char *path, uint64_t limit, struct err *e)
{
	int fd, rc = 0;
	uint64_t size;
	TRY(open_read(path, &fd, &size, e));
	struct buf r = BUF_INIT;
	if (!limit)
		limit = 1ull << 30;
	if (size > limit) /* by its size; what is read is held against the limit as well */
		rc = err_set(e, ERR_INPUT, "%s: larger than %llu bytes", path,
			     (unsigned long long)limit);
	else
		buf_reserve(&r, (size_t)size);
	char chunk[65536];
	while (!rc && !r.failed) {
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = err_sys(e, errno, "%s: reading", path);
		if (n <= 0)
			break;
		if (r.n + (size_t)n > limit)
			rc = err_set(e, ERR_INPUT, "%s: larger than %llu bytes", path,
				     (unsigned long long)limit);
		else
			buf_add(&r, chunk, (size_t)n);
	}
	if (!rc)
		rc = buf_ok(&r, e);
	close(fd);
	if (rc < 0) {
		buf_release(&r);
		return rc;
	}
	buf_release(b);
	*b = r;
	return 0;
}
