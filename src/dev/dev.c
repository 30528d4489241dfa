/* SPDX-License-Identifier: Apache-2.0 */
/* dev.c - what all backends share: opening by name, checking ranges, counting memory, defaults for
 * slots that are NULL. */
#include "dev/dev.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 256 };

#define BACKEND(name) extern const struct backend backend_##name;
#include "dev/backend.def"
#undef BACKEND

const struct backend *const backends[] = {
#define BACKEND(name) &backend_##name,
#include "dev/backend.def"
#undef BACKEND
	NULL
};

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

const struct backend *backend_find(const char *name)
{
	for (size_t i = 0; backends[i]; i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}

static int open_at(const struct backend *be, int index, const char *spec, struct dev **d_p,
		   struct err *e)
{
	struct dev *d = mem_zalloc(sizeof *d);
	if (!d)
		return err_nomem(e, sizeof *d, "a device");
	d->be = be;
	d->index = index;
	int rc = be->open(d, index, e);
	if (rc < 0) {
		mem_free(d);
		return err_prefix(e, "device '%s'", spec);
	}
	*d_p = d;
	return 0;
}

struct choice {
	const struct backend *be;
	int index, rank;
};

static size_t choices(struct choice *v, size_t most)
{
	size_t n = 0;
	for (size_t i = 0; backends[i]; i++) {
		const struct backend *be = backends[i];
		struct err why = { 0 };
		const int count = be->rank ? be->count(&why) : 0;
		if (count < 0)
			log_warn("%s is left out: %s", be->name, why.msg);
		for (int k = 0; k < count && n < most; k++) {
			const struct choice c = { be, k, be->rank(k) };
			size_t at = n;
			if (c.rank <= 0)
				continue;
			for (; at && v[at - 1].rank < c.rank; at--)
				v[at] = v[at - 1];
			v[at] = c;
			n++;
		}
	}
	return n;
}

static int open_best(struct dev **d_p, struct err *e)
{
	struct choice v[CHOICES];
	const size_t n = choices(v, CHOICES);
	for (size_t i = 0; i < n; i++) {
		char spec[DEV_SPEC];
		snprintf(spec, sizeof spec, "%s:%d", v[i].be->name, v[i].index);
		err_clear(e);
		int rc = open_at(v[i].be, v[i].index, spec, d_p, e);
		if (rc >= 0 || i + 1 == n)
			return rc;
		log_warn("%s; the next one is tried", e->msg);
	}
	return err_set(e, ERR_DEVICE, "device 'auto': there is none (see 'heteroshard devices')");
}

void dev_successive(int k, char spec[DEV_SPEC])
{
	struct choice v[CHOICES], best[CHOICES];
	const size_t n = choices(v, CHOICES);
	bool done[CHOICES] = { false };
	for (size_t i = 0; i < n; i++) {
		size_t same = 0;
		for (size_t j = i; j < n && !done[i]; j++)
			if (v[j].be == v[i].be) {
				best[same++] = v[j];
				done[j] = j > i;
			}
		struct dev *d;
		struct err why = { 0 };
		if (!same)
			continue;
		const struct choice *c = &best[(size_t)k % same];
		snprintf(spec, DEV_SPEC, "%s:%d", c->be->name, c->index);
		if (open_at(c->be, c->index, spec, &d, &why) >= 0) {
			dev_close(d);
			return;
		}
		log_warn("%s; the next backend is tried", why.msg);
	}
	snprintf(spec, DEV_SPEC, "auto");
}

void dev_spec(const struct dev *d, char spec[DEV_SPEC])
{
	snprintf(spec, DEV_SPEC, "%s:%d", d->be->name, d->index);
}

int dev_open(const char *spec, struct dev **d_p, struct err *e)
{
	char name[32];
	size_t n = strcspn(spec, ":");
	if (!strcmp(spec, "auto"))
		return open_best(d_p, e);
	if (n >= sizeof name)
		return err_set(e, ERR_USAGE, "device '%s': no such backend", spec);
	memcpy(name, spec, n);
	name[n] = 0;
	int index = 0;
	if (spec[n] == ':') {
		char *end;
		long v = strtol(spec + n + 1, &end, 10);
		if (*end || end == spec + n + 1 || v < 0 || v > 4095)
			return err_set(e, ERR_USAGE,
				       "device '%s': a number was expected behind the colon", spec);
		index = (int)v;
	}
	const struct backend *be = backend_find(name);
	if (!be)
		return err_set(e, ERR_USAGE,
			       "device '%s': no such backend (see 'heteroshard devices')", spec);
	int count = be->count(e);
	if (count < 0)
		return err_prefix(e, "device '%s'", spec);
	if (index >= count)
		return err_set(e, ERR_DEVICE,
			       "device '%s': this machine has %d such device%s (see 'heteroshard "
			       "devices')",
			       spec, count, count == 1 ? "" : "s");
	return open_at(be, index, spec, d_p, e);
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
	return d->be->caps(d, caps_p, e);
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
	return d->be->gemm(d, g, e);
}

int dev_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
	       struct err *e)
{
	return d->be->launch(d, k, t, args, e);
}

int dev_sync(struct dev *d, struct err *e) { return d->be->sync ? d->be->sync(d, e) : 0; }
bool dev_has(struct dev *d, enum dev_kernel k, enum dtype t)
{
	return !d->be->has || d->be->has(d, k, t);
}
