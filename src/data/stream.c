/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - see stream.h. */
#include "data/stream.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { ROOM = 64 << 10, ZSTD_WINDOW = 27 };

struct stream {
	char *path;
	int fd;
	enum { PLAIN, GZIP, ZST } pack;
	bool eof, ended; /* the file; the packed stream, at this place */
	uint8_t *in;
	size_t at, have;
	z_stream z;
	ZSTD_DStream *zst;
};

static int fill(struct stream *s, struct err *e)
{
	ssize_t n;
	if (s->at < s->have || s->eof)
		return 0;
	do
		n = read(s->fd, s->in, ROOM);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, errno, "%s: reading", s->path);
	s->eof = n == 0;
	s->at = 0;
	s->have = (size_t)n;
	return 0;
}

static int begin(struct stream *s, struct err *e)
{
	static const uint8_t gz[] = { 0x1f, 0x8b }, zst[] = { 0x28, 0xb5, 0x2f, 0xfd };
	size_t n = 0;
	while (n < 4) { /* a pipe may give them one by one */
		ssize_t k = read(s->fd, s->in + n, ROOM - n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_sys(e, errno, "%s: reading", s->path);
		if (!k)
			break;
		n += (size_t)k;
	}
	s->have = n;
	if (n >= 2 && !memcmp(s->in, gz, 2)) {
		s->pack = GZIP;
		if (inflateInit2(&s->z, 15 + 16) != Z_OK)
			return err_nomem(e, sizeof s->z, "gzip");
	} else if (n >= 4 && !memcmp(s->in, zst, 4)) {
		s->pack = ZST;
		s->zst = ZSTD_createDStream();
		if (!s->zst || ZSTD_isError(ZSTD_initDStream(s->zst)))
			return err_nomem(e, ROOM, "zstd");
		ZSTD_DCtx_setParameter(s->zst, ZSTD_d_windowLogMax, ZSTD_WINDOW);
	}
	return 0;
}

int stream_open(const char *path, struct stream **s_p, struct err *e)
{
	struct stream *s = mem_zalloc(sizeof *s);
	int rc = s ? 0 : err_nomem(e, sizeof *s, "a reader");
	if (rc < 0)
		return rc;
	s->fd = -1;
	s->path = mem_strdup(path);
	s->in = mem_alloc(ROOM);
	rc = s->path && s->in ? open_stream(path, &s->fd, e) : err_nomem(e, ROOM, "a reader");
	if (rc >= 0)
		rc = begin(s, e);
	if (rc < 0)
		stream_close(s);
	else
		*s_p = s;
	return rc;
}

void stream_close(struct stream *s)
{
	if (!s)
		return;
	if (s->pack == GZIP)
		inflateEnd(&s->z);
	ZSTD_freeDStream(s->zst);
	if (s->fd >= 0)
		close(s->fd);
	mem_free(s->path);
	mem_free(s->in);
	mem_free(s);
}

static int unpack_gzip(struct stream *s, void *p, size_t n, size_t *got_p, struct err *e)
{
	if (s->ended && inflateReset(&s->z) != Z_OK) /* the next member */
		return err_nomem(e, ROOM, "gzip");
	s->ended = false;
	s->z.next_in = s->in + s->at;
	s->z.avail_in = (uInt)(s->have - s->at);
	s->z.next_out = p;
	s->z.avail_out = n > 1u << 30 ? 1u << 30 : (uInt)n;
	int rc = inflate(&s->z, Z_NO_FLUSH);
	s->at = s->have - s->z.avail_in;
	*got_p = (size_t)((uint8_t *)s->z.next_out - (uint8_t *)p);
	s->ended = rc == Z_STREAM_END;
	if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
		return err_set(e, ERR_INPUT, "%s: damaged gzip data: %s", s->path,
			       s->z.msg ? s->z.msg : "unexpected");
	return 0;
}

static int unpack_zstd(struct stream *s, void *p, size_t n, size_t *got_p, struct err *e)
{
	ZSTD_inBuffer in = { s->in, s->have, s->at };
	ZSTD_outBuffer out = { p, n, 0 };
	size_t rc = ZSTD_decompressStream(s->zst, &out, &in);
	if (ZSTD_isError(rc))
		return err_set(e, ERR_INPUT, "%s: damaged zstd data: %s", s->path,
			       ZSTD_getErrorName(rc));
	s->at = in.pos;
	s->ended = rc == 0;
	*got_p = out.pos;
	return 0;
}

int stream_read(struct stream *s, void *p, size_t n, size_t *got_p, struct err *e)
{
	*got_p = 0;
	while (!*got_p && n) {
		TRY(fill(s, e));
		size_t have = s->have - s->at;
		if (s->pack == PLAIN) {
			*got_p = have < n ? have : n;
			if (!have)
				return 0;
			memcpy(p, s->in + s->at, *got_p);
			s->at += *got_p;
			return 0;
		}
		if (!have && s->ended)
			return 0;
		size_t before = s->at;
		TRY(s->pack == GZIP ? unpack_gzip(s, p, n, got_p, e)
				    : unpack_zstd(s, p, n, got_p, e));
		if (!*got_p && s->at == before && !s->ended && s->eof)
			return err_set(e, ERR_INPUT,
				       "%s: the packed data does not end (is the file cut off?)",
				       s->path);
	}
	return 0;
}

bool stream_ends(const char *path, const char *ending)
{
	static const char *const packs[] = { "", ".gz", ".zst" };
	size_t len = strlen(path), n = strlen(ending);
	for (size_t i = 0; i < ARRAY_LEN(packs); i++) {
		size_t k = strlen(packs[i]);
		if (len > n + k && !strcasecmp(path + len - k, packs[i]) &&
		    !strncasecmp(path + len - k - n, ending, n))
			return true;
	}
	return false;
}
