/* SPDX-License-Identifier: Apache-2.0 */
/* wandb.c - see wandb.h. */
#include "report/wandb.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/version.h"
#include "file/atomic.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { BLOCK = 32768, HEAD = 7, ID = 8, PATH_MOST = 4096 };
enum { WHOLE = 1, FIRST, MIDDLE, LAST }; /* kinds of parts of a record */
/* fields of Record, RunRecord, ConfigRecord, HistoryRecord */
enum { R_NUM = 1, R_HISTORY = 2, R_SUMMARY = 3, R_RUN = 17, R_EXIT = 18, R_HEADER = 21 };
enum { RUN_ID = 1, RUN_ENTITY, RUN_PROJECT, RUN_CONFIG, RUN_NAME = 8, RUN_START = 17 };
enum { ITEM = 1, ITEM_KEY = 1, ITEM_NESTED = 2, ITEM_JSON = 16, HISTORY_STEP = 2 };

struct wandb {
	char dir[PATH_MOST], path[PATH_MOST], id[ID + 1];
	int fd;
	uint64_t at;     /* bytes in the file */
	int64_t records; /* so far */
	int64_t step;    /* of `items`; -1: there was none */
	int64_t began;   /* seconds */
	struct buf items;
};

/* ---- protobuf ---- */

static void put_varint(struct buf *b, uint64_t v)
{
	for (; v >= 128; v >>= 7)
		buf_addc(b, (char)(v | 128));
	buf_addc(b, (char)v);
}

static void put_number(struct buf *b, int field, uint64_t v)
{
	put_varint(b, (uint64_t)field << 3);
	put_varint(b, v);
}

static void put_bytes(struct buf *b, int field, const char *p, size_t n)
{
	put_varint(b, (uint64_t)field << 3 | 2);
	put_varint(b, n);
	buf_add(b, p, n);
}

static void put_text(struct buf *b, int field, const char *s) { put_bytes(b, field, s, strlen(s)); }

static void put_item(struct buf *b, int key_field, const char *key, const char *json, size_t n)
{
	struct buf item = BUF_INIT;
	put_text(&item, key_field, key);
	put_bytes(&item, ITEM_JSON, json, n);
	b->failed = b->failed || item.failed;
	put_bytes(b, ITEM, item.p, item.n);
	buf_release(&item);
}

/* ---- the log ---- */

static int write_all(struct wandb *w, const void *p, size_t n, struct err *e)
{
	const ssize_t wrote = write(w->fd, p, n);
	if (wrote != (ssize_t)n)
		return err_sys(e, wrote < 0 ? errno : ENOSPC, "cannot write %s", w->path);
	w->at += n;
	return 0;
}

static int write_part(struct wandb *w, uint8_t kind, const char *p, size_t n, struct err *e)
{
	const uLong crc = crc32(crc32(0, &kind, 1), (const Bytef *)p, (uInt)n);
	const unsigned char head[HEAD] = { (unsigned char)crc,
					   (unsigned char)(crc >> 8),
					   (unsigned char)(crc >> 16),
					   (unsigned char)(crc >> 24),
					   (unsigned char)n,
					   (unsigned char)(n >> 8),
					   kind };
	TRY(write_all(w, head, sizeof head, e));
	return write_all(w, p, n, e);
}

/* A record in as many parts as the blocks make of it. */
static int write_log(struct wandb *w, const char *p, size_t n, struct err *e)
{
	static const char zeros[HEAD] = { 0 };
	for (bool first = true;; first = false) {
		size_t room = BLOCK - w->at % BLOCK;
		if (room < HEAD) {
			TRY(write_all(w, zeros, room, e));
			room = BLOCK;
		}
		const size_t some = n < room - HEAD ? n : room - HEAD;
		const bool last = some == n;
		TRY(write_part(w,
			       first && last ? WHOLE
			       : first       ? FIRST
			       : last        ? LAST
					     : MIDDLE,
			       p, some, e));
		if (last)
			return 0;
		p += some;
		n -= some;
	}
}

static int write_record(struct wandb *w, int field, const struct buf *inner, struct err *e)
{
	struct buf b = BUF_INIT;
	put_number(&b, R_NUM, (uint64_t)++w->records);
	put_bytes(&b, field, inner->p, inner->n);
	b.failed = b.failed || inner->failed;
	int rc = buf_ok(&b, e);
	if (rc >= 0)
		rc = write_log(w, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

/* ---- the run ---- */

static int write_header(struct wandb *w, struct err *e)
{
	struct buf version = BUF_INIT, header = BUF_INIT;
	put_text(&version, 1, "heteroshard " HS_VERSION);
	put_text(&version, 2, "0.31.0");
	put_bytes(&header, 1, version.p, version.n);
	const int rc = write_record(w, R_HEADER, &header, e);
	buf_release(&version);
	buf_release(&header);
	return rc;
}

static void put_config(struct buf *run, const json_t *config)
{
	struct buf all = BUF_INIT;
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)config, key, v)
	{
		char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		if (text)
			put_item(&all, ITEM_KEY, key, text, strlen(text));
		free(text);
	}
	put_bytes(run, RUN_CONFIG, all.p, all.n);
	buf_release(&all);
}

static int write_run(struct wandb *w, const struct wandb_run *r, struct err *e)
{
	struct buf run = BUF_INIT, start = BUF_INIT;
	put_text(&run, RUN_ID, w->id);
	if (r->entity)
		put_text(&run, RUN_ENTITY, r->entity);
	put_text(&run, RUN_PROJECT, r->project);
	put_config(&run, r->config);
	put_text(&run, RUN_NAME, r->name);
	put_number(&start, 1, (uint64_t)w->began);
	put_bytes(&run, RUN_START, start.p, start.n);
	const int rc = write_record(w, R_RUN, &run, e);
	buf_release(&run);
	buf_release(&start);
	return rc;
}

static int make_names(struct wandb *w, const char *dir, struct err *e)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	const time_t now = (time_t)w->began;
	struct tm t;
	char date[32];
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "no source of random numbers");
	for (int i = 0; i < ID; i++)
		w->id[i] = letters[randombytes_uniform(sizeof letters - 1)];
	localtime_r(&now, &t);
	strftime(date, sizeof date, "%Y%m%d_%H%M%S", &t);
	if (snprintf(w->dir, PATH_MOST, "%s/offline-run-%s-%s", dir, date, w->id) >= PATH_MOST ||
	    snprintf(w->path, PATH_MOST, "%.*s/run-%s.wandb", PATH_MOST - 32, w->dir, w->id) < 0)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return 0;
}

int wandb_open(const char *dir, const struct wandb_run *r, struct wandb **w_p, struct err *e)
{
	static const char head[HEAD] = { ':', 'W', '&', 'B', (char)0xe1, (char)0xbe, 0 };
	struct wandb *w = mem_zalloc(sizeof *w);
	int rc;
	if (!w)
		return err_nomem(e, sizeof *w, "the metrics for Weights & Biases");
	w->fd = -1;
	w->step = -1;
	w->began = (int64_t)time(NULL);
	TRYOUT(make_names(w, dir, e));
	TRYOUT(dir_make_result(w->dir, e));
	TRYOUT(open_write_err(w->path, OPEN_APPEND, 0666, &w->fd, e));
	TRYOUT(write_all(w, head, sizeof head, e));
	TRYOUT(write_header(w, e));
	TRYOUT(write_run(w, r, e));
	*w_p = w;
	return 0;
out:
	if (w->fd >= 0)
		close(w->fd);
	mem_free(w);
	return rc;
}

const char *wandb_folder(const struct wandb *w) { return w->dir; }

static void put_value(struct wandb *w, const char *key, double v)
{
	char text[40];
	if (isfinite(v))
		snprintf(text, sizeof text, "%.17g", v);
	else
		snprintf(text, sizeof text, "\"%s\"",
			 isnan(v) ? "NaN"
			 : v > 0  ? "Infinity"
				  : "-Infinity");
	put_item(&w->items, ITEM_NESTED, key, text, strlen(text));
}

/* The values of a step: a line of the history, and what the summary shows now. */
static int flush(struct wandb *w, struct err *e)
{
	struct buf step = BUF_INIT;
	if (!w->items.n)
		return 0;
	put_value(w, "_step", (double)w->step);
	put_value(w, "_timestamp", (double)time(NULL));
	put_value(w, "_runtime", (double)(time(NULL) - w->began));
	int rc = write_record(w, R_SUMMARY, &w->items, e);
	put_number(&step, 1, (uint64_t)w->step);
	put_bytes(&w->items, HISTORY_STEP, step.p, step.n);
	if (rc >= 0)
		rc = write_record(w, R_HISTORY, &w->items, e);
	buf_release(&step);
	buf_reset(&w->items);
	return rc;
}

int wandb_metric(struct wandb *w, const char *key, int64_t step, double value, struct err *e)
{
	if (step < w->step)
		return 0;
	if (step > w->step)
		TRY(flush(w, e));
	w->step = step;
	put_value(w, key, value);
	return 0;
}

void wandb_close(struct wandb *w, int failed)
{
	struct err ignored = { 0 };
	struct buf end = BUF_INIT;
	if (!w)
		return;
	put_number(&end, 1, failed ? 1 : 0);
	put_number(&end, 2, (uint64_t)(time(NULL) - w->began));
	if (flush(w, &ignored) >= 0)
		write_record(w, R_EXIT, &end, &ignored);
	buf_release(&end);
	buf_release(&w->items);
	close(w->fd);
	mem_free(w);
}
