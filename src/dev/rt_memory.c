/* SPDX-License-Identifier: Apache-2.0 */
/* rt_memory.c - see rt.h: memory of the device, and what moves in and out of it.
 *
 * Blocks that are freed are kept and used again for requests that fill at least 8/9 of them, in the
 * order of the streams, without the driver; when the driver has none left they are given back
 * first. What such requests leave of their blocks is LOOSE of the card's memory at most. Drivers
 * map pieces of 2 MiB wherever they lie, so memory that is free is never too scattered; and a job
 * whose buffers fit beside that part gets them in any order. */
#include "dev/rt.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

#define SMALL ((size_t)1 << 20)
enum { LOOSE = 128 /* a part of so many */ };

/* Sizes are rounded so that equal uses find each other. */
static size_t rounded(size_t n)
{
	const size_t step = n < SMALL ? 512 : (size_t)64 << 10;
	return (n + step - 1) / step * step;
}

/* What a driver takes for n bytes. */
static size_t pieces(size_t n)
{
	const size_t step = (size_t)2 << 20;
	return n < SMALL ? n : (n + step - 1) / step * step;
}

static struct rt_block *reuse(struct rt *c, size_t n)
{
	struct rt_block **best = NULL;
	for (struct rt_block **p = &c->spare; *p; p = &(*p)->next)
		if ((*p)->size >= n && (*p)->size - n <= n / 8 &&
		    c->loose + pieces((*p)->size) - pieces(n) <= c->mem_total / LOOSE &&
		    (!best || (*p)->size < (*best)->size))
			best = p;
	struct rt_block *b = best ? *best : NULL;
	if (b) {
		*best = b->next;
		b->asked = n;
		c->loose += pieces(b->size) - pieces(n);
	}
	return b;
}

static void give_back(struct rt *c)
{
	while (c->spare) {
		struct rt_block *b = c->spare;
		c->spare = b->next;
		c->held -= b->size;
		if (!c->lost)
			c->f->memory_free(b->at); /* waits for what still uses it */
		mem_free(b);
	}
}

static int no_room(struct rt *c, size_t n, struct err *e)
{
	size_t left = 0, total = 0;
	const unsigned long long mib = 1 << 20;
	if (c->f->memory_info(&left, &total) != RT_OK)
		return err_set(e, ERR_NOMEM, "%s: a buffer of %llu MiB does not fit", c->label,
			       (n + mib - 1) / mib);
	const uint64_t others = total > left + c->held ? total - left - c->held : 0,
		       missing = n > left ? n - left : 0;
	return err_set(e, ERR_NOMEM,
		       "%s: a buffer of %llu MiB does not fit: of %llu MiB %llu are free, this "
		       "program's buffers hold %llu, other programs and the driver %llu%s; "
		       "%llu MiB must be saved",
		       c->label, (n + mib - 1) / mib, total / mib, left / mib,
		       (unsigned long long)c->held / mib, (unsigned long long)others / mib,
		       missing ? "" : " (what is free is in pieces)",
		       (missing ? missing + mib - 1 : n) / mib);
}

int rt_idle(struct rt *c, struct err *e)
{
	TRY(rt_flush(c, e));
	TRY(rt_downloaded(c, e));
	for (int i = 0; i < RT_SLOTS; i++)
		if (c->slot[i].busy) {
			TRY(rt_wait(c, c->slot[i].event, e));
			c->slot[i].busy = false;
		}
	c->seen = c->copies;
	if (c->finished == c->launched)
		return 0;
	TRY(rt_failed(c, c->f->event_record(c->compute_event, c->compute), "queueing", e));
	TRY(rt_wait(c, c->compute_event, e));
	c->finished = c->launched;
	return 0;
}

bool rt_spare_back(struct rt *c, struct err *e)
{
	/* freeing waits inside the driver, where our time limit does not apply: wait before it */
	if (!c->spare || rt_idle(c, e) < 0)
		return false;
	err_clear(e);
	give_back(c);
	return true;
}

int rt_take(struct rt *c, size_t n, struct rt_block **b_p, struct err *e)
{
	uint64_t at = 0;
	if (n > SIZE_MAX / 2)
		return no_room(c, n, e);
	n = rounded(n);
	struct rt_block *b = reuse(c, n);
	if (b) {
		*b_p = b;
		return 0;
	}
	b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "a buffer");
	int code = c->f->memory(&at, n);
	if (code == RT_OUT_OF_MEMORY && rt_spare_back(c, e))
		code = c->f->memory(&at, n);
	if (code != RT_OK) {
		mem_free(b);
		return code == RT_OUT_OF_MEMORY ? no_room(c, n, e)
						: rt_failed(c, code, "taking memory", e);
	}
	b->at = at;
	b->size = b->asked = n;
	c->held += n;
	if (c->held > c->held_peak)
		c->held_peak = c->held;
	*b_p = b;
	return 0;
}

void rt_give(struct rt *c, struct rt_block *b)
{
	c->loose -= pieces(b->size) - pieces(b->asked);
	b->named.panel = false;
	b->next = c->spare;
	c->spare = b;
}

void rt_memory_release(struct rt *c) { give_back(c); }

int rt_alloc(struct dev *d, struct dev_buf *buf, struct err *e)
{
	struct rt_block *b;
	TRY(rt_enter(d->priv, e));
	TRY(rt_take(d->priv, buf->size, &b, e));
	buf->handle = (uint64_t)(uintptr_t)b;
	return 0;
}

void rt_free(struct dev *d, struct dev_buf *b) { rt_give(d->priv, rt_block_of(b)); }

/* ---- memory of the host's that the driver knows ---- */

/* *far_p: the other end's card, NULL: there is none. */
static bool is_pinned(struct rt *c, const void *p, size_t n, struct rt_far **far_p)
{
	const char *at = p;
	bool is = false;
	*far_p = NULL;
	pthread_mutex_lock(&c->pin_lock);
	for (size_t i = 0; i < c->npinned && !is; i++) {
		is = at >= c->pinned[i].p && n <= c->pinned[i].n &&
		     (size_t)(at - c->pinned[i].p) <= c->pinned[i].n - n;
		if (is)
			*far_p = c->pinned[i].far;
	}
	pthread_mutex_unlock(&c->pin_lock);
	return is;
}

bool rt_pin(struct dev *d, void *p, size_t n)
{
	struct rt *c = d->priv;
	struct err ignored = { 0 };
	bool ok = rt_enter(c, &ignored) == 0;
	pthread_mutex_lock(&c->pin_lock);
	ok = ok && mem_grow(&c->pinned, &c->pinned_cap, c->npinned + 1, sizeof *c->pinned) &&
	     c->f->host_register(p, n, 0) == RT_OK;
	if (ok)
		c->pinned[c->npinned++] = (struct rt_pinned){ p, n, rt_far_new(c, p, n) };
	pthread_mutex_unlock(&c->pin_lock);
	return ok;
}

void rt_unpin(struct dev *d, void *p)
{
	struct rt *c = d->priv;
	struct err ignored = { 0 };
	const bool well = rt_enter(c, &ignored) == 0;
	pthread_mutex_lock(&c->pin_lock);
	for (size_t i = 0; i < c->npinned; i++)
		if (c->pinned[i].p == p) {
			rt_far_free(c, c->pinned[i].far, well);
			c->pinned[i] = c->pinned[--c->npinned];
			if (well)
				c->f->host_unregister(p);
			break;
		}
	pthread_mutex_unlock(&c->pin_lock);
}

void rt_pins_release(struct rt *c, bool well)
{
	for (size_t i = 0; i < c->npinned; i++) {
		rt_far_free(c, c->pinned[i].far, well);
		if (well)
			c->f->host_unregister(c->pinned[i].p);
	}
	rt_far_release(c, well);
	mem_free(c->pinned);
	c->pinned = NULL;
	c->npinned = c->pinned_cap = 0;
	pthread_mutex_destroy(&c->pin_lock);
}

/* ---- transfers ---- */

/* To or from a piece: one thread copies less a second than a card's link carries. */
static void copy_piece(char *to, const char *from, size_t n)
{
	enum { THREADS = 4 };
	const size_t part = n / THREADS / 4096 * 4096;
	if (n < SMALL) {
		memcpy(to, from, n);
		return;
	}
#pragma omp parallel for num_threads(THREADS)
	for (int i = 0; i < THREADS; i++)
		memcpy(to + (size_t)i * part, from + (size_t)i * part,
		       i < THREADS - 1 ? part : n - (THREADS - 1) * part);
}

/* Puts as much of the download under way on the copy stream as there are pieces for. */
static int ask(struct rt *c, struct err *e)
{
	while (c->down.asked < c->down.n && c->down.asked - c->down.at < RT_SLOTS * RT_PIECE) {
		struct rt_slot *s = &c->back[c->down.asked / RT_PIECE % RT_SLOTS];
		const size_t rest = c->down.n - c->down.asked,
			     some = rest < RT_PIECE ? rest : RT_PIECE;
		TRY(rt_failed(c,
			      c->f->download(s->host, c->down.src + c->down.asked, some, c->copy),
			      "download", e));
		TRY(rt_failed(c, c->f->event_record(s->event, c->copy), "queueing", e));
		c->down.asked += some;
	}
	return 0;
}

static int next_piece(struct rt *c, struct err *e)
{
	struct rt_down *o = &c->down;
	const struct rt_slot *s = &c->back[o->at / RT_PIECE % RT_SLOTS];
	const size_t some = o->n - o->at < RT_PIECE ? o->n - o->at : RT_PIECE;
	TRY(rt_wait(c, s->event, e));
	if (c->finished < o->behind)
		c->finished = o->behind;
	copy_piece(o->dst + o->at, s->host, some);
	o->at += some;
	return ask(c, e);
}

int rt_downloaded(struct rt *c, struct err *e)
{
	int rc = c->down.direct ? rt_wait(c, c->back[0].event, e) : 0;
	if (c->down.direct && rc == 0 && c->finished < c->down.behind)
		c->finished = c->down.behind;
	while (!c->down.direct && c->down.at < c->down.n && rc == 0)
		rc = next_piece(c, e);
	/* after an error too: where it was going may be gone by the next call */
	c->down = (struct rt_down){ 0 };
	return rc;
}

/* Before a block is written: a download from it that does not fit into the pieces has to come to
 * its end. */
static int keep_for_download(struct rt *c, const struct rt_block *b, struct err *e)
{
	return c->down.b == b && c->down.asked < c->down.n ? rt_downloaded(c, e) : 0;
}

/* What the compute stream gets waits for transfer number `copied`, and for all others so far. */
static int after_copies(struct rt *c, uint64_t copied, struct err *e)
{
	if (copied <= c->seen)
		return 0;
	TRY(rt_failed(c, c->f->event_record(c->copy_event, c->copy), "queueing", e));
	TRY(rt_failed(c, c->f->stream_wait(c->compute, c->copy_event, 0), "queueing", e));
	c->seen = c->copies;
	return 0;
}

int rt_use_block(struct rt *c, struct rt_block *b, struct err *e)
{
	TRY(keep_for_download(c, b, e));
	TRY(after_copies(c, b->named.copy, e));
	b->used = c->launched + 1;
	b->named.work = c->order + 1;
	return 0;
}

int rt_use(struct rt *c, const struct dev_buf *buf, struct err *e)
{
	return buf ? rt_use_block(c, rt_block_of(buf), e) : 0;
}

/* What the copy stream gets waits for work number `used`, if that may still run: not for what is
 * behind it, where it has been told to wait before that was queued. */
static int after_work(struct rt *c, uint64_t used, struct err *e)
{
	if (used <= c->finished || used <= c->ordered)
		return 0;
	TRY(rt_failed(c, c->f->event_record(c->compute_event, c->compute), "queueing", e));
	TRY(rt_failed(c, c->f->stream_wait(c->copy, c->compute_event, 0), "queueing", e));
	c->ordered = c->launched;
	return 0;
}

static int after_kernels(struct rt *c, const struct rt_block *b, struct err *e)
{
	return after_work(c, b->used, e);
}

int rt_meet(struct dev *d, struct err *e)
{
	struct rt *c = d->priv;
	TRY(rt_enter(c, e));
	TRY(rt_flush(c, e));
	TRY(after_copies(c, c->copies, e));
	return after_work(c, c->launched, e);
}

/* The next piece of pinned memory, when what was in it has left. */
static int take_slot(struct rt *c, int *slot_p, struct err *e)
{
	const int i = c->next_slot;
	if (c->slot[i].busy)
		TRY(rt_wait(c, c->slot[i].event, e));
	c->slot[i].busy = false;
	c->next_slot = (i + 1) % RT_SLOTS;
	*slot_p = i;
	return 0;
}

static int mark_slot(struct rt *c, int i, struct err *e)
{
	TRY(rt_failed(c, c->f->event_record(c->slot[i].event, c->copy), "queueing", e));
	c->slot[i].busy = true;
	return 0;
}

/* The caller's memory is his again at return, so the card must have read it. `far`: it may lie on
 * another process's card. */
static int upload_from(struct rt *c, struct dev_ref dst, const void *src, size_t n,
		       struct rt_far *far, struct err *e)
{
	uint64_t from = 0;
	size_t there = 0;
	int i;
	TRY(take_slot(c, &i, e));
	if (far)
		TRY(rt_far_receive(c, far, src, n, &from, &there, e));
	if (there)
		TRY(rt_failed(c, c->f->copy(rt_address(dst), from, there, c->copy), "copy", e));
	if (there < n)
		TRY(rt_failed(c,
			      c->f->upload(rt_address(dst) + there, (const char *)src + there,
					   n - there, c->copy),
			      "upload", e));
	c->far_bytes += there;
	TRY(mark_slot(c, i, e));
	rt_block_of(dst.buf)->named.copy = ++c->copies;
	c->direct += n;
	TRY(rt_wait(c, c->slot[i].event, e));
	c->slot[i].busy = false;
	return 0;
}

int rt_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	struct rt *c = d->priv;
	struct rt_block *b = rt_block_of(dst.buf);
	struct rt_far *far;
	TRY(rt_enter(c, e));
	TRY(rt_flush(c, e));
	TRY(keep_for_download(c, b, e));
	TRY(after_kernels(c, b, e));
	if (n >= RT_DIRECT && is_pinned(c, src, n, &far))
		return upload_from(c, dst, src, n, far, e);
	for (size_t at = 0; at < n; at += RT_PIECE) {
		const size_t some = n - at < RT_PIECE ? n - at : RT_PIECE;
		int i;
		TRY(take_slot(c, &i, e));
		copy_piece(c->slot[i].host, (const char *)src + at, some);
		TRY(rt_failed(c, c->f->upload(rt_address(dst) + at, c->slot[i].host, some, c->copy),
			      "upload", e));
		TRY(mark_slot(c, i, e));
	}
	b->named.copy = ++c->copies;
	return 0;
}

int rt_download_begin(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	struct rt *c = d->priv;
	struct rt_block *b = rt_block_of(src.buf);
	struct rt_far *far;
	uint64_t to = 0;
	TRY(rt_enter(c, e));
	TRY(rt_flush(c, e));
	TRY(rt_downloaded(c, e));
	TRY(after_kernels(c, b, e));
	const uint64_t behind = c->ordered > c->finished ? c->ordered : c->finished;
	c->down = (struct rt_down){
		.b = b, .dst = dst, .src = rt_address(src), .n = n, .behind = behind
	};
	b->named.copy = ++c->copies;
	if (n < RT_DIRECT || !is_pinned(c, dst, n, &far))
		return ask(c, e);
	const int there = far ? rt_far_send(c, far, dst, n, &to, e) : 0;
	if (there < 0)
		return there;
	c->down.direct = true;
	c->down.asked = n;
	c->direct += n;
	c->far_bytes += there ? n : 0;
	TRY(rt_failed(c,
		      there ? c->f->copy(to, c->down.src, n, c->copy)
			    : c->f->download(dst, c->down.src, n, c->copy),
		      "download", e));
	return rt_failed(c, c->f->event_record(c->back[0].event, c->copy), "queueing", e);
}

int rt_download_end(struct dev *d, struct err *e)
{
	struct rt *c = d->priv;
	if (!c->down.n)
		return 0;
	const int rc = rt_enter(c, e);
	if (rc < 0)
		c->down = (struct rt_down){ 0 };
	return rc < 0 ? rc : rt_downloaded(c, e);
}

int rt_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	TRY(rt_download_begin(d, dst, src, n, e));
	return rt_downloaded(d->priv, e);
}

static int give(struct rt *c, const struct rt_work *w, struct err *e)
{
	const int rc = rt_give_work(c, w, e);
	return rc < 0 ? rc : 0;
}

static int copy_on(struct rt *c, uint64_t to, uint64_t from, size_t n, struct err *e)
{
	return give(
		c,
		&(struct rt_work){ .same = { .kind = RT_COPY, .n = 3, .value = { to, from, n } },
				   .name = "a copy" },
		e);
}

int rt_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	struct rt *c = d->priv;
	struct rt_block *tmp;
	TRY(rt_enter(c, e));
	TRY(rt_use(c, dst.buf, e));
	TRY(rt_use(c, src.buf, e));
	if (dst.buf != src.buf || dst.off >= src.off + n || src.off >= dst.off + n)
		return copy_on(c, rt_address(dst), rt_address(src), n, e);
	if (dst.off == src.off)
		return 0;
	/* drivers copy no range onto itself */
	TRY(rt_take(c, n, &tmp, e));
	int rc = rt_use_block(c, tmp, e);
	if (rc == 0)
		rc = copy_on(c, tmp->at, rt_address(src), n, e);
	if (rc == 0)
		rc = copy_on(c, rt_address(dst), tmp->at, n, e);
	rt_block_of(dst.buf)->used = tmp->used = c->launched + 1;
	rt_give(c, tmp);
	return rc;
}

int rt_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e)
{
	struct rt *c = d->priv;
	TRY(rt_enter(c, e));
	TRY(rt_use(c, dst.buf, e));
	return give(c,
		    &(struct rt_work){
			    .same = { .kind = RT_CLEAR, .n = 2, .value = { rt_address(dst), n } },
			    .name = "clearing" },
		    e);
}
