/* SPDX-License-Identifier: Apache-2.0 */
/* dev.c - what all backends share: names of kernels, checking ranges, counting memory, defaults for
 * slots that are NULL. The list of backends is in backends.c. */
#include "dev/dev_text.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>

static const struct {
	const char *name, *sig;
} kernels[K_COUNT] = {
#define KERNEL(n, s) { #n, s },
#include "dev/kernel.def"
#undef KERNEL
};

const char *dev_kernel_name(enum dev_kernel k)
{
	return (unsigned)k < K_COUNT ? kernels[k].name : "?";
}
const char *dev_kernel_sig(enum dev_kernel k)
{
	return (unsigned)k < K_COUNT ? kernels[k].sig : "";
}

void dev_spec(const struct dev *d, char spec[DEV_SPEC])
{
	snprintf(spec, DEV_SPEC, "%s:%d", d->be->name, d->index);
}

void dev_close(struct dev *d)
{
	if (!d)
		return;
	d->be->close(d);
	mem_free(d);
}

int dev_caps(struct dev *d, struct dev_caps *caps_p, struct err *e)
{
	TRY(d->be->caps(d, caps_p, e));
	if (caps_p->mem_free > caps_p->mem_total)
		caps_p->mem_free = caps_p->mem_total; /* callers subtract */
	return 0;
}

int dev_alloc(struct dev *d, size_t bytes, struct dev_buf **b_p, struct err *e)
{
	struct dev_buf *b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "a buffer");
	b->dev = d;
	b->size = bytes ? bytes : 1;
	int rc = d->be->alloc(d, b, e);
	if (rc < 0) {
		mem_free(b);
		return rc;
	}
	d->allocs++;
	d->mem_used += b->size;
	if (d->mem_used > d->mem_peak)
		d->mem_peak = d->mem_used;
	*b_p = b;
	return 0;
}

void dev_free(struct dev_buf *b)
{
	if (!b)
		return;
	b->dev->mem_used -= b->size;
	b->dev->be->free(b->dev, b);
	mem_free(b);
}

static int in_range(struct dev_ref r, size_t n, const char *what, struct err *e)
{
	if (!r.buf || r.off > r.buf->size || n > r.buf->size - r.off)
		return err_set(e, ERR_INTERNAL,
			       "%s of %zu bytes at offset %zu is outside a buffer of %zu", what, n,
			       r.off, r.buf ? r.buf->size : 0);
	return 0;
}

int dev_upload(struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	if (!n)
		return 0;
	TRY(in_range(dst, n, "upload", e));
	return dst.buf->dev->be->upload(dst.buf->dev, dst, src, n, e);
}

int dev_download(void *dst, struct dev_ref src, size_t n, struct err *e)
{
	if (!n)
		return 0;
	TRY(in_range(src, n, "download", e));
	return src.buf->dev->be->download(src.buf->dev, dst, src, n, e);
}

bool dev_beside(const struct dev *d) { return d->be->download_begin != NULL; }
int dev_download_end(struct dev *d, struct err *e)
{
	return dev_beside(d) ? d->be->download_end(d, e) : 0;
}
int dev_meet(struct dev *d, struct err *e) { return d->be->meet ? d->be->meet(d, e) : 0; }
int dev_busy(struct dev *d, struct err *e) { return dev_beside(d) ? d->be->busy(d, e) : 0; }

int dev_download_begin(void *dst, struct dev_ref src, size_t n, struct err *e)
{
	if (!n)
		return 0;
	TRY(in_range(src, n, "download", e));
	const struct backend *be = src.buf->dev->be;
	return (dev_beside(src.buf->dev) ? be->download_begin : be->download)(src.buf->dev, dst,
									      src, n, e);
}

int dev_copy(struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	if (!n)
		return 0;
	TRY(in_range(dst, n, "copy", e));
	TRY(in_range(src, n, "copy", e));
	return dst.buf->dev->be->copy(dst.buf->dev, dst, src, n, e);
}

int dev_zero(struct dev_ref dst, size_t n, struct err *e)
{
	if (!n)
		return 0;
	TRY(in_range(dst, n, "clearing", e));
	return dst.buf->dev->be->zero(dst.buf->dev, dst, n, e);
}

static size_t span(int64_t rows, int64_t cols, int64_t ld, enum dtype t)
{
	return rows && cols ? ((size_t)(rows - 1) * (size_t)ld + (size_t)cols) * dtype_size(t) : 0;
}

int dev_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	if (!g->m || !g->n)
		return 0;
	if (g->k) {
		TRY(in_range(g->a,
			     g->ta ? span(g->k, g->m, g->lda, g->ab_dtype)
				   : span(g->m, g->k, g->lda, g->ab_dtype),
			     "matrix A", e));
		TRY(in_range(g->b,
			     g->tb ? span(g->n, g->k, g->ldb, g->ab_dtype)
				   : span(g->k, g->n, g->ldb, g->ab_dtype),
			     "matrix B", e));
	}
	TRY(in_range(g->c, span(g->m, g->n, g->ldc, g->c_dtype), "matrix C", e));
	if (g->d.buf && g->beta != 0)
		TRY(in_range(g->d, span(g->m, g->n, g->ldc, g->c_dtype), "matrix D", e));
	return d->be->gemm(d, g, e);
}

int dev_gemm_in_place(struct dev *d, const struct dev_gemm *g, struct dev_gemm *in_place_p,
		      struct err *e)
{
	const size_t row = (size_t)g->n * dtype_size(g->c_dtype),
		     ld = (size_t)g->ldc * dtype_size(g->c_dtype);
	*in_place_p = *g;
	in_place_p->d = DEV_NONE;
	if (!g->d.buf || g->beta == 0)
		return 0;
	if (row == ld)
		return d->be->copy(d, g->c, g->d, row * (size_t)g->m, e);
	const union dev_arg a[] = { { .b = g->c }, { .b = g->d },   { .i = g->m },
				    { .i = g->n }, { .i = g->ldc }, { .i = g->ldc } };
	return d->be->launch(d, K_copy_columns, g->c_dtype, a, e);
}

int dev_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
	       struct err *e)
{
	return d->be->launch(d, k, t, args, e);
}

int dev_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e)
{
	if (l->groups < 1 && l->lanes < 1)
		return 0;
	return d->be->launch_text
		       ? d->be->launch_text(d, l, e)
		       : err_set(e, ERR_UNSUPPORTED,
				 "%s is a text of kernels, which the device '%s' cannot compile",
				 l->text->name, d->be->name);
}

int dev_repeat_begin(struct dev *d, uint64_t key, struct err *e)
{
	d->panel = 0;
	return d->be->repeat_begin ? d->be->repeat_begin(d, key, e) : 0;
}

int dev_repeat_end(struct dev *d, struct err *e)
{
	return d->be->repeat_end ? d->be->repeat_end(d, e) : 0;
}

int dev_sync(struct dev *d, struct err *e) { return d->be->sync ? d->be->sync(d, e) : 0; }
bool dev_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	return !d->be->has || d->be->has(d, k, t);
}
