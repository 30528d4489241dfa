/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.c - see tensorboard.h. Every record is one write, so a killed run leaves only
 * complete records. */
#include "report/tensorboard.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/le.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/atomic.h"
#include "net/frame.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAG_MOST = 120, RECORD_MOST = 256, DUE_MOST = 8 << 20 };

#define NONE INT64_MAX

struct tensorboard {
	int fd;
	char path[4096];
	struct buf due; /* not written yet */
	bool waits;     /* the disk did not take it, and that was said */
	int64_t back;   /* steps from this one on come again, which is not written yet; or NONE */
};

static uint32_t masked(const void *p, size_t n)
{
	uint32_t crc = crc32c(0, p, n);
	return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static size_t put_le(unsigned char *p, uint64_t v, size_t bytes)
{
	le_put(p, v, bytes);
	return bytes;
}

static size_t put_varint(unsigned char *p, uint64_t v)
{
	size_t n = 0;
	for (; v >= 0x80; v >>= 7)
		p[n++] = (unsigned char)(v | 0x80);
	p[n++] = (unsigned char)v;
	return n;
}

static size_t put_double(unsigned char *p, double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	return put_le(p, u, 8);
}

static size_t put_float(unsigned char *p, float v)
{
	uint32_t u;
	memcpy(&u, &v, 4);
	return put_le(p, u, 4);
}

/* A length-delimited field; the number of a field and its wire type share one byte here. */
static size_t put_bytes(unsigned char *p, int field, const void *data, size_t n)
{
	size_t at = 0;
	p[at++] = (unsigned char)(field << 3 | 2);
	at += put_varint(p + at, n);
	memcpy(p + at, data, n);
	return at + n;
}

/* What the disk does not take stays for the next time, and the file ends with a whole record. */
static int write_due(struct tensorboard *t, struct err *e)
{
	const off_t end = lseek(t->fd, 0, SEEK_END);
	const ssize_t w = write(t->fd, t->due.p, t->due.n);
	const int errnum = w < 0 ? errno : ENOSPC;
	if (w == (ssize_t)t->due.n) {
		buf_reset(&t->due);
		t->waits = false;
		return 0;
	}
	if ((w > 0 && end >= 0 && ftruncate(t->fd, end) < 0) || t->due.n > DUE_MOST)
		return err_sys(e, errnum, "cannot write %s", t->path);
	if (!t->waits)
		log_warn("%s cannot be written now (%s): it is kept and written later", t->path,
			 strerror(errnum));
	t->waits = true;
	return 0;
}

static int write_record(struct tensorboard *t, const unsigned char *data, size_t n, struct err *e)
{
	unsigned char r[RECORD_MOST + 16];
	put_le(r, n, 8);
	put_le(r + 8, masked(r, 8), 4);
	memcpy(r + 12, data, n);
	put_le(r + 12 + n, masked(data, n), 4);
	buf_add(&t->due, r, n + 16);
	TRY(buf_ok(&t->due, e));
	return write_due(t, e);
}

static size_t put_time(unsigned char *p)
{
	p[0] = 1 << 3 | 1;
	return 1 + put_double(p + 1, (double)clock_wall() * 1e-9);
}

/* Seconds since 1970, more than in the name of any file that is there. */
static long long name_time(const char *dir)
{
	long long now = (long long)(clock_wall() / 1000000000), there;
	DIR *d = opendir(dir);
	for (struct dirent *i; d && (i = readdir(d));)
		if (sscanf(i->d_name, "events.out.tfevents.%18lld.", &there) == 1 && there >= now)
			now = there + 1;
	if (d)
		closedir(d);
	return now;
}

int tensorboard_open(const char *dir, struct tensorboard **t_p, struct err *e)
{
	char host[64] = "";
	TRY(dir_make(dir, e));
	struct tensorboard *t = mem_zalloc(sizeof *t);
	if (!t)
		return err_nomem(e, sizeof *t, "the TensorBoard file");
	t->back = NONE;
	gethostname(host, sizeof host - 1);
	int n = snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%lld.%s.%ld.heteroshard",
			 dir, name_time(dir), host[0] ? host : "host", (long)getpid());
	int rc;
	if (n < 0 || (size_t)n >= sizeof t->path) {
		rc = err_set(e, ERR_IO, "%s: the path is too long", dir);
		goto fail;
	}
	rc = open_write_err(t->path, OPEN_APPEND, 0666, &t->fd, e);
	if (rc < 0)
		goto fail;
	static const char version[] = "brain.Event:2";
	unsigned char data[RECORD_MOST];
	size_t at = put_time(data);
	at += put_bytes(data + at, 3, version, sizeof version - 1);
	rc = write_record(t, data, at, e);
	if (rc < 0) {
		close(t->fd);
		buf_release(&t->due);
		goto fail;
	}
	*t_p = t;
	return 0;
fail:
	mem_free(t);
	return rc;
}

void tensorboard_go_back(struct tensorboard *t, int64_t step)
{
	t->back = step < t->back ? step : t->back;
}

/* Event { step = 2, session_log = 7 { status = 1: START } } */
static int write_back(struct tensorboard *t, struct err *e)
{
	static const unsigned char start[] = { 1 << 3 | 0, 1 };
	unsigned char data[RECORD_MOST];
	if (t->back == NONE)
		return 0;
	size_t n = put_time(data);
	data[n++] = 2 << 3 | 0;
	n += put_varint(data + n, (uint64_t)t->back);
	n += put_bytes(data + n, 7, start, sizeof start);
	t->back = NONE;
	return write_record(t, data, n, e);
}

int tensorboard_scalar(struct tensorboard *t, const char *tag, int64_t step, double v,
		       struct err *e)
{
	unsigned char value[RECORD_MOST], summary[RECORD_MOST], data[RECORD_MOST];
	TRY(write_back(t, e));
	size_t n = strnlen(tag, TAG_MOST), at = put_bytes(value, 1, tag, n);
	value[at++] = 2 << 3 | 5;
	at += put_float(value + at, (float)v);
	size_t ns = put_bytes(summary, 1, value, at), nd = put_time(data);
	data[nd++] = 2 << 3 | 0;
	nd += put_varint(data + nd, (uint64_t)step);
	nd += put_bytes(data + nd, 5, summary, ns);
	return write_record(t, data, nd, e);
}

void tensorboard_close(struct tensorboard *t)
{
	if (!t)
		return;
	struct err ignored = { 0 };
	write_back(t, &ignored);
	if (t->due.n)
		write_due(t, &ignored);
	buf_release(&t->due);
	close(t->fd);
	mem_free(t);
}
