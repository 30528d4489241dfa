/* SPDX-License-Identifier: Apache-2.0 */
/* opencl_memory.c - see opencl.h: buffers, and what moves in and out of them beside the kernels. */
#include "base/err.h"
#include "base/mem.h"
#include "dev/opencl.h"

#include <stdio.h>
#include <string.h>

/* ---- pieces ---- */

void opencl_pieces_release(struct opencl *c)
{
	const struct cl_functions *f = &c->lib->f;
	for (int i = 0; i < 2 * OPENCL_PIECES; i++) {
		struct opencl_piece *p =
			i < OPENCL_PIECES ? &c->piece[i] : &c->back[i - OPENCL_PIECES];
		if (p->moved)
			f->clReleaseEvent(p->moved);
		if (p->host && !c->lost)
			f->clEnqueueUnmapMemObject(c->copy, p->mem, p->host, 0, NULL, NULL);
		if (p->mem)
			f->clReleaseMemObject(p->mem);
		*p = (struct opencl_piece){ 0 };
	}
}

/* False: the driver has none to give. */
static bool piece_there(struct opencl *c, struct opencl_piece *p)
{
	const struct cl_functions *f = &c->lib->f;
	int32_t rc = CL_SUCCESS;
	if (c->no_pieces || p->host)
		return !c->no_pieces;
	p->mem = f->clCreateBuffer(c->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
				   OPENCL_PIECE, NULL, &rc);
	if (rc == CL_SUCCESS)
		p->host = f->clEnqueueMapBuffer(c->copy, p->mem, CL_TRUE, CL_MAP_READ_WRITE, 0,
						OPENCL_PIECE, 0, NULL, NULL, &rc);
	c->no_pieces = rc != CL_SUCCESS;
	return !c->no_pieces;
}

static int32_t piece_moved(struct opencl *c, struct opencl_piece *p, const char *what)
{
	if (!p->moved)
		return CL_SUCCESS;
	const int32_t rc = opencl_wait_event(c, p->moved, what);
	c->lib->f.clReleaseEvent(p->moved);
	p->moved = NULL;
	return rc;
}

/* ---- the download under way ---- */

/* Puts as much of the download under way on the queue as there are pieces for. */
static int32_t ask(struct opencl *c)
{
	struct opencl_down *o = &c->down;
	const size_t before = o->asked;
	while (o->asked < o->n && o->asked - o->at < OPENCL_PIECES * OPENCL_PIECE) {
		struct opencl_piece *p = &c->back[o->asked / OPENCL_PIECE % OPENCL_PIECES];
		const size_t rest = o->n - o->asked,
			     some = rest < OPENCL_PIECE ? rest : OPENCL_PIECE;
		const int32_t rc =
			c->lib->f.clEnqueueReadBuffer(c->copy, o->b->mem, 0, o->off + o->asked,
						      some, p->host, 0, NULL, &p->moved);
		if (rc != CL_SUCCESS)
			return rc;
		o->asked += some;
	}
	return o->asked > before ? c->lib->f.clFlush(c->copy) : CL_SUCCESS;
}

static int32_t downloaded(struct opencl *c)
{
	struct opencl_down *o = &c->down;
	int32_t rc = o->n ? opencl_wait_until(c, o->behind, "a download") : CL_SUCCESS;
	while (o->at < o->n && rc == CL_SUCCESS) {
		struct opencl_piece *p = &c->back[o->at / OPENCL_PIECE % OPENCL_PIECES];
		const size_t some = o->n - o->at < OPENCL_PIECE ? o->n - o->at : OPENCL_PIECE;
		rc = piece_moved(c, p, "a download");
		if (rc != CL_SUCCESS)
			break;
		if (c->finished < o->behind)
			c->finished = o->behind;
		memcpy(o->dst + o->at, p->host, some);
		o->at += some;
		rc = ask(c);
	}
	*o = (struct opencl_down){ 0 };
	return rc;
}

/* Before a buffer is written: a download from it that does not fit into the pieces has to come to
 * its end. */
static int keep_for_download(struct opencl *c, const struct opencl_buf *b, struct err *e)
{
	return c->down.b == b && c->down.asked < c->down.n
		       ? opencl_failed(c, downloaded(c), "download", e)
		       : 0;
}

/* ---- buffers ---- */

int opencl_alloc(struct dev *d, struct dev_buf *b, struct err *e)
{
	struct opencl *c = d->priv;
	int32_t rc = CL_MEM_OBJECT_ALLOCATION_FAILURE;
	struct opencl_buf *o = mem_zalloc(sizeof *o);
	if (!o)
		return err_nomem(e, sizeof *o, "a buffer");
	/* drivers may take memory only at the first use: what cannot fit is refused here */
	if (b->size <= c->mem_largest && (!c->mem_total || d->mem_used + b->size <= c->mem_total))
		o->mem =
			c->lib->f.clCreateBuffer(c->context, CL_MEM_READ_WRITE, b->size, NULL, &rc);
	if (rc == CL_SUCCESS) {
		b->handle = (uint64_t)(uintptr_t)o;
		return 0;
	}
	mem_free(o);
	if (b->size > c->mem_largest)
		return err_set(e, ERR_NOMEM,
			       "%s: %zu MiB were asked for in one buffer, and the driver gives one "
			       "at most %llu of its %llu MiB (CL_DEVICE_MAX_MEM_ALLOC_SIZE), "
			       "however much is free",
			       c->who, b->size >> 20, (unsigned long long)c->mem_largest >> 20,
			       (unsigned long long)c->mem_total >> 20);
	char others[80] = "";
	uint64_t free = 0;
	if (opencl_free_memory(c->lib, c->at.device, &free))
		snprintf(others, sizeof others, ", others hold %llu",
			 (unsigned long long)(c->mem_total > free + d->mem_used
						      ? c->mem_total - free - d->mem_used
						      : 0) >>
				 20);
	return err_set(e, ERR_NOMEM,
		       "%s is out of memory: %zu MiB were asked for (%s); of its %llu MiB this "
		       "program holds %llu%s",
		       c->who, b->size >> 20, opencl_error(rc),
		       (unsigned long long)c->mem_total >> 20,
		       (unsigned long long)d->mem_used >> 20, others);
}

void opencl_free(struct dev *d, struct dev_buf *b)
{
	struct opencl *c = d->priv;
	if (c->down.b == opencl_buf_of(b))
		downloaded(c);
	/* the driver keeps it until what is queued has run */
	c->lib->f.clReleaseMemObject(opencl_mem(b));
	mem_free(opencl_buf_of(b));
}

/* ---- two queues ---- */

/* What `behind` is given from now on waits for what `before` has so far. */
static int32_t follow(struct opencl *c, cl_queue behind, cl_queue before)
{
	const struct cl_functions *f = &c->lib->f;
	cl_event v;
	int32_t rc = f->clEnqueueMarkerWithWaitList(before, 0, NULL, &v);
	if (rc != CL_SUCCESS)
		return rc;
	rc = f->clFlush(before);
	if (rc == CL_SUCCESS)
		rc = f->clEnqueueBarrierWithWaitList(behind, 1, &v, NULL);
	f->clReleaseEvent(v);
	return rc;
}

/* What `copy` gets waits for work number `used` of `queue`: not for what is behind that, where it
 * has been told to wait before that was queued. */
static int32_t after_work(struct opencl *c, uint64_t used)
{
	if (used <= c->finished || used <= c->ordered)
		return CL_SUCCESS;
	c->ordered = c->launched;
	return follow(c, c->copy, c->queue);
}

static int32_t after_kernels(struct opencl *c, const struct opencl_buf *b)
{
	return after_work(c, b->named.work);
}

/* What `queue` gets waits for transfer number `copied`, and for all others so far. */
static int32_t after_copies(struct opencl *c, uint64_t copied)
{
	if (copied <= c->seen)
		return CL_SUCCESS;
	c->seen = c->copies;
	return follow(c, c->queue, c->copy);
}

int opencl_meet(struct dev *d, struct err *e)
{
	struct opencl *c = d->priv;
	TRY(opencl_failed(c, after_copies(c, c->copies), "queueing", e));
	return opencl_failed(c, after_work(c, c->launched), "queueing", e);
}

int opencl_use(struct opencl *c, const struct dev_buf *buf, struct err *e)
{
	struct opencl_buf *b = buf ? opencl_buf_of(buf) : NULL;
	if (!b)
		return 0;
	TRY(keep_for_download(c, b, e));
	TRY(opencl_failed(c, after_copies(c, b->named.copy), "queueing", e));
	b->named.work = c->launched + 1;
	return 0;
}

/* ---- transfers ---- */

static int32_t upload_some(struct opencl *c, struct opencl_buf *b, size_t off, const char *src,
			   size_t n, size_t *some_p)
{
	const struct cl_functions *f = &c->lib->f;
	struct opencl_piece *p = &c->piece[c->next_piece];
	int32_t rc;
	if (!piece_there(c, p)) {
		*some_p = n;
		rc = opencl_wait_until(c, b->named.work, "an upload");
		dev_watch_begin(&c->watch, "an upload");
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueWriteBuffer(c->copy, b->mem, CL_TRUE, off, n, src, 0, NULL,
						     NULL);
		dev_watch_end(&c->watch);
		return rc;
	}
	*some_p = n < OPENCL_PIECE ? n : OPENCL_PIECE;
	rc = piece_moved(c, p, "an upload");
	if (rc != CL_SUCCESS)
		return rc;
	memcpy(p->host, src, *some_p);
	c->next_piece = (c->next_piece + 1) % OPENCL_PIECES;
	return f->clEnqueueWriteBuffer(c->copy, b->mem, 0, off, *some_p, p->host, 0, NULL,
				       &p->moved);
}

int opencl_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	struct opencl_buf *b = opencl_buf_of(dst.buf);
	TRY(keep_for_download(c, b, e));
	int32_t rc = after_kernels(c, b);
	for (size_t at = 0, some; at < n && rc == CL_SUCCESS; at += some)
		rc = upload_some(c, b, dst.off + at, (const char *)src + at, n - at, &some);
	b->named.copy = ++c->copies;
	if (rc == CL_SUCCESS)
		rc = c->lib->f.clFlush(c->copy);
	return opencl_failed(c, rc, "upload", e);
}

int opencl_download_end(struct dev *d, struct err *e)
{
	return opencl_failed(d->priv, downloaded(d->priv), "download", e);
}

int opencl_download_begin(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	struct opencl_buf *b = opencl_buf_of(src.buf);
	bool pieces = true;
	int32_t rc = downloaded(c);
	if (rc == CL_SUCCESS)
		rc = after_kernels(c, b);
	const uint64_t behind = c->ordered > c->finished ? c->ordered : c->finished;
	for (int i = 0; i < OPENCL_PIECES && (size_t)i * OPENCL_PIECE < n && rc == CL_SUCCESS; i++)
		pieces &= piece_there(c, &c->back[i]);
	if (rc == CL_SUCCESS && pieces) {
		c->down = (struct opencl_down){
			.b = b, .dst = dst, .off = src.off, .n = n, .behind = behind
		};
		b->named.copy = ++c->copies;
		rc = ask(c);
	} else if (rc == CL_SUCCESS) {
		rc = opencl_wait_until(c, behind, "a download");
		dev_watch_begin(&c->watch, "a download");
		if (rc == CL_SUCCESS)
			rc = c->lib->f.clEnqueueReadBuffer(c->copy, b->mem, CL_TRUE, src.off, n,
							   dst, 0, NULL, NULL);
		dev_watch_end(&c->watch);
	}
	return opencl_failed(c, rc, "download", e);
}

int opencl_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	TRY(opencl_download_begin(d, dst, src, n, e));
	return opencl_download_end(d, e);
}

int opencl_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	struct opencl *c = d->priv;
	const struct cl_functions *f = &c->lib->f;
	const cl_mem from = opencl_mem(src.buf), to = opencl_mem(dst.buf);
	int32_t rc;
	TRY(opencl_use(c, dst.buf, e));
	TRY(opencl_use(c, src.buf, e));
	if (from != to || dst.off >= src.off + n || src.off >= dst.off + n) {
		rc = f->clEnqueueCopyBuffer(c->queue, from, to, src.off, dst.off, n, 0, NULL, NULL);
	} else if (dst.off == src.off) {
		return 0;
	} else { /* OpenCL copies no range onto itself */
		cl_mem tmp = f->clCreateBuffer(c->context, CL_MEM_READ_WRITE, n, NULL, &rc);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueCopyBuffer(c->queue, from, tmp, src.off, 0, n, 0, NULL,
						    NULL);
		if (rc == CL_SUCCESS)
			rc = f->clEnqueueCopyBuffer(c->queue, tmp, to, 0, dst.off, n, 0, NULL,
						    NULL);
		if (tmp)
			f->clReleaseMemObject(tmp);
	}
	if (rc == CL_SUCCESS)
		rc = opencl_launched(c, 0);
	return opencl_failed(c, rc, "copy", e);
}

int opencl_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e)
{
	static const uint8_t zeros[16];
	struct opencl *c = d->priv;
	const size_t width = (dst.off | n) % 16 == 0 ? 16 : (dst.off | n) % 4 == 0 ? 4 : 1;
	TRY(opencl_use(c, dst.buf, e));
	int32_t rc = c->lib->f.clEnqueueFillBuffer(c->queue, opencl_mem(dst.buf), zeros, width,
						   dst.off, n, 0, NULL, NULL);
	if (rc == CL_SUCCESS)
		rc = opencl_launched(c, 0);
	return opencl_failed(c, rc, "clearing", e);
}
