/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c - see bytes.h. */
#include "data/bytes.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "data/stream.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PART = 1 << 16 };

static int unpack(struct bytes *b, uint64_t most, struct err *e)
{
	struct stream *s;
	size_t cap = 0, got = 1;
	TRY(stream_open(b->path, &s, e));
	int rc = 0;
	while (rc >= 0 && got) {
		if (b->size > most)
			rc = err_set(
				e, ERR_UNSUPPORTED,
				"%s: has more than %llu MiB unpacked; unpack the file, then it "
				"is read from disk",
				b->path, (unsigned long long)(most >> 20));
		else if (!mem_grow(&b->mem, &cap, b->size + PART, 1))
			rc = err_nomem(e, b->size + PART, b->path);
		else
			rc = stream_read(s, b->mem + b->size, PART, &got, e);
		b->size += rc < 0 ? 0 : got;
	}
	stream_close(s);
	return rc;
}

int bytes_open(struct bytes *b, const char *path, uint64_t most, struct err *e)
{
	uint8_t head[4] = { 0 };
	*b = (struct bytes){ .path = path, .fd = -1 };
	TRY(open_read(path, &b->fd, &b->size, e));
	int rc = bytes_read(b, 0, head, b->size < 4 ? b->size : 4, e);
	const bool packed = !memcmp(head, "\x1f\x8b", 2) || !memcmp(head, "\x28\xb5\x2f\xfd", 4);
	if (rc >= 0 && packed) {
		close(b->fd);
		b->fd = -1;
		b->size = 0;
		rc = unpack(b, most, e);
	}
	if (rc < 0)
		bytes_close(b);
	return rc;
}

void bytes_close(struct bytes *b)
{
	if (b->fd >= 0)
		close(b->fd);
	mem_free(b->mem);
	*b = (struct bytes){ .fd = -1 };
}

int bytes_read(const struct bytes *b, uint64_t at, void *dst, uint64_t n, struct err *e)
{
	if (at > b->size || n > b->size - at)
		return err_set(e, ERR_INPUT, "%s: ends early: %llu bytes are needed, it has %llu",
			       b->path, (unsigned long long)(at + n), (unsigned long long)b->size);
	if (b->fd < 0) {
		if (n)
			memcpy(dst, b->mem + at, n);
		return 0;
	}
	for (uint64_t done = 0; done < n;) {
		const ssize_t k =
			pread(b->fd, (char *)dst + done, (size_t)(n - done), (off_t)(at + done));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_sys(e, errno, "%s: reading", b->path);
		if (!k)
			return err_set(e, ERR_INPUT, "%s: became shorter while it was read",
				       b->path);
		done += (uint64_t)k;
	}
	return 0;
}

/* Feeds a stream that is open from the file, part by part. */
static int feed(const struct bytes *b, z_stream *z, uint64_t at, uint64_t packed, uint64_t n,
		uint8_t *in, struct err *e)
{
	int state = Z_OK;
	while (state == Z_OK && packed) {
		const uint64_t part = packed < PART ? packed : PART;
		TRY(bytes_read(b, at, in, part, e));
		z->next_in = in;
		z->avail_in = (uInt)part;
		at += part;
		packed -= part;
		while (state == Z_OK && z->avail_in && z->avail_out)
			state = inflate(z, Z_NO_FLUSH);
		if (state == Z_OK && z->avail_in)
			break;
	}
	return state == Z_STREAM_END && z->total_out == n
		       ? 0
		       : err_set(e, ERR_INPUT, "%s: what is packed in it is damaged", b->path);
}

int bytes_inflate(struct bytes *b, uint64_t at, uint64_t packed, uint64_t n, struct err *e)
{
	z_stream z = { 0 };
	if (n / 1032 > packed) /* deflate packs no better */
		return err_set(e, ERR_INPUT, "%s: what is packed in it is damaged", b->path);
	uint8_t *in = mem_alloc(PART), *out = mem_alloc((size_t)n + 1);
	int rc = in && out && inflateInit2(&z, -15) == Z_OK ? 0 : err_nomem(e, n, b->path);
	if (rc >= 0) {
		z.next_out = out;
		z.avail_out = (uInt)n + 1; /* the caller holds it below 4 GiB */
		rc = feed(b, &z, at, packed, n, in, e);
		inflateEnd(&z);
	}
	mem_free(in);
	if (rc < 0) {
		mem_free(out);
		return rc;
	}
	const char *path = b->path;
	bytes_close(b);
	*b = (struct bytes){ .path = path, .fd = -1, .mem = out, .size = n };
	return 0;
}
