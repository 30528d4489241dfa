/* SPDX-License-Identifier: Apache-2.0 */
/* dev_null.c - see dev_null.h. */
#include "dev/dev_null.h"

#include "base/err.h"
#include "base/mem.h"
#include "dev/gpu.h"

#include <stdio.h>
#include <string.h>

static int null_count(struct err *e)
{
	(void)e;
	return 1;
}

static int null_open(struct dev *d, int index, struct err *e)
{
	(void)index;
	d->priv = mem_zalloc(sizeof(struct dev_null_counts));
	return d->priv ? 0 : err_nomem(e, sizeof(struct dev_null_counts), "a device");
}

static void null_close(struct dev *d) { mem_free(d->priv); }

static int null_caps(struct dev *d, struct dev_caps *caps_p, struct err *e)
{
	(void)d;
	(void)e;
	struct dev_caps c = { .mem_total = UINT64_C(1) << 40,
			      .mem_free = UINT64_C(1) << 40,
			      .units = 1,
			      .bf16 = true,
			      .f16 = true,
			      .unified = true };
	snprintf(c.name, sizeof c.name, "nothing");
	*caps_p = c;
	return 0;
}

static int null_alloc(struct dev *d, struct dev_buf *b, struct err *e)
{
	(void)d;
	b->host = mem_aligned(64, b->size);
	return b->host ? 0 : err_nomem(e, b->size, "a buffer");
}

static void null_free(struct dev *d, struct dev_buf *b)
{
	(void)d;
	mem_free(b->host);
}

static char *at(struct dev_ref r) { return (char *)r.buf->host + r.off; }

static int null_upload(struct dev *d, struct dev_ref dst, const void *src, size_t n, struct err *e)
{
	(void)e;
	memcpy(at(dst), src, n);
	dev_null_counts(d)->upload_bytes += n;
	return 0;
}

static int null_download(struct dev *d, void *dst, struct dev_ref src, size_t n, struct err *e)
{
	(void)e;
	memcpy(dst, at(src), n);
	dev_null_counts(d)->download_bytes += n;
	return 0;
}

static int null_copy(struct dev *d, struct dev_ref dst, struct dev_ref src, size_t n, struct err *e)
{
	(void)e;
	memmove(at(dst), at(src), n);
	dev_null_counts(d)->copies++;
	dev_null_counts(d)->copy_bytes += n;
	return 0;
}

static int null_zero(struct dev *d, struct dev_ref dst, size_t n, struct err *e)
{
	(void)e;
	memset(at(dst), 0, n);
	dev_null_counts(d)->copies++;
	dev_null_counts(d)->zero_bytes += n;
	return 0;
}

static int null_gemm(struct dev *d, const struct dev_gemm *g, struct err *e)
{
	(void)e;
	struct dev_null_counts *c = dev_null_counts(d);
	c->gemms++;
	c->gemm_bytes += (uint64_t)((g->m + g->n) * g->k) * dtype_size(g->ab_dtype) +
			 (uint64_t)(g->m * g->n) * dtype_size(g->c_dtype) * (g->beta != 0 ? 2 : 1);
	c->gemm_flops += 2 * (uint64_t)g->m * (uint64_t)g->n * (uint64_t)g->k;
	return 0;
}

static int null_launch(struct dev *d, enum dev_kernel k, enum dtype t, const union dev_arg *args,
		       struct err *e)
{
	if ((unsigned)k >= K_COUNT)
		return err_set(e, ERR_INTERNAL, "kernel number %d does not exist", (int)k);
	const int64_t pieces = gpu_pieces(k, args);
	for (int64_t p = 0; p < pieces; p++) {
		union dev_arg a[GPU_ARGS];
		struct gpu_step steps[GPU_STEPS];
		const int n = gpu_piece(k, t, args, p, pieces, a, steps, e);
		if (n < 0)
			return n;
		dev_null_counts(d)->entries += (uint64_t)n;
	}
	dev_null_counts(d)->launches++;
	dev_null_counts(d)->kernel[k]++;
	return 0;
}

static int null_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e)
{
	(void)l;
	(void)e;
	dev_null_counts(d)->entries++;
	dev_null_counts(d)->launches++;
	return 0;
}

const struct backend backend_null = {
	.name = "null",
	.count = null_count,
	.open = null_open,
	.close = null_close,
	.caps = null_caps,
	.alloc = null_alloc,
	.free = null_free,
	.upload = null_upload,
	.download = null_download,
	.copy = null_copy,
	.zero = null_zero,
	.gemm = null_gemm,
	.launch = null_launch,
	.launch_text = null_launch_text,
};

struct dev_null_counts *dev_null_counts(struct dev *d)
{
	return d->be == &backend_null ? d->priv : NULL;
}
