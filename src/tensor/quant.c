/* SPDX-License-Identifier: Apache-2.0 */
/* quant.c - see quant.h. The arithmetic follows bitsandbytes' CPU code step by step (float32,
 * reciprocal of absmax for whole blocks, division for a short last one), because its files must be
 * reproduced byte for byte. */
#include "tensor/quant.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const float nf4_code[16] = { -1.0f,
			     -0.6961928009986877f,
			     -0.5250730514526367f,
			     -0.39491748809814453f,
			     -0.28444138169288635f,
			     -0.18477343022823334f,
			     -0.09105003625154495f,
			     0.0f,
			     0.07958029955625534f,
			     0.16093020141124725f,
			     0.24611230194568634f,
			     0.33791524171829224f,
			     0.44070982933044434f,
			     0.5626170039176941f,
			     0.7229568362236023f,
			     1.0f };

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static float code2[256];

static void make_code2(void)
{
	int n = 0;
	for (int i = 0; i < 7; i++) {
		int items = (1 << i) + 1;
		float step = (1.0f - 0.1f) / (float)(items - 1), bound[65],
		      scale = (float)pow(10, i - 6);
		for (int k = 0; k < items; k++)
			bound[k] = k < items / 2 ? fmaf(step, (float)k, 0.1f)
						 : fmaf(-step, (float)(items - 1 - k), 1.0f);
		for (int k = 0; k + 1 < items; k++) {
			float mean = (bound[k] + bound[k + 1]) / 2.0f;
			code2[n++] = scale * mean;
			code2[n++] = -scale * mean;
		}
	}
	code2[n++] = 0;
	code2[n++] = 1;
	qsort(code2, 256, sizeof *code2, by_value);
}

const float *nf4_code2(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_code2);
	return code2;
}

/* Index of the code value nearest to x: how many midpoints lie strictly below it. */
static inline unsigned nearest(float x, const float mid[15])
{
	unsigned q = 0;
	for (int i = 0; i < 15; i++)
		q += x > mid[i];
	return q;
}

static float block_absmax(const float *x, int n)
{
	float m = 0;
	for (int i = 0; i < n; i++)
		m = fmaxf(m, fabsf(x[i]));
	return m;
}

void nf4_quantize(const float *src, uint64_t n, uint8_t *packed, float *absmax)
{
	float mid[15];
	for (int i = 0; i < 15; i++)
		mid[i] = (nf4_code[i] + nf4_code[i + 1]) / 2.0f;
	int64_t blocks = (int64_t)((n + NF4_BLOCK - 1) / NF4_BLOCK);
#pragma omp parallel for schedule(static)
	for (int64_t b = 0; b < blocks; b++) {
		const float *x = src + b * NF4_BLOCK;
		uint64_t left = n - (uint64_t)b * NF4_BLOCK;
		int some = left < NF4_BLOCK ? (int)left : NF4_BLOCK;
		float scaled[NF4_BLOCK + 1] = { 0 }, most = block_absmax(x, some);
		uint8_t q[NF4_BLOCK + 1];
		if (some == NF4_BLOCK) {
			float r = 1.0f / fmaxf(most, 1e-38f);
			for (int i = 0; i < NF4_BLOCK; i++)
				scaled[i] = x[i] * r;
		} else {
			most = fmaxf(most, 1e-38f);
			for (int i = 0; i < some; i++)
				scaled[i] = x[i] / most;
		}
		absmax[b] = most;
		for (int i = 0; i < NF4_BLOCK; i++)
			q[i] = (uint8_t)nearest(scaled[i], mid);
		for (int i = 0; i < some; i += 2) /* an odd count is padded with a zero */
			packed[(b * NF4_BLOCK + i) / 2] = (uint8_t)(q[i] << 4 | q[i + 1]);
	}
}

void nf4_quantize_absmax(const float *absmax, uint64_t n, uint8_t *absmax8, float *absmax2,
			 float *offset_p)
{
	const float *code = nf4_code2();
	double sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += absmax[i];
	float offset = n ? (float)(sum / (double)n) : 0;
	for (uint64_t b = 0; b * NF4_BLOCK2 < n; b++) {
		uint64_t first = b * NF4_BLOCK2,
			 end = first + NF4_BLOCK2 < n ? first + NF4_BLOCK2 : n;
		float most = 0;
		for (uint64_t i = first; i < end; i++)
			most = fmaxf(most, fabsf(absmax[i] - offset));
		absmax2[b] = most;
		for (uint64_t i = first; i < end; i++) {
			/* bitsandbytes looks its values up on a grid of 65,536 points; a block of
			 * zeros falls on the first of them. */
			float x = most > 0 ? (absmax[i] - offset) / most : -1;
			x = (float)(uint32_t)((x + 1.0f) * 0.5f * 65535.0f + 0.5f) * 2.0f /
				    65535.0f -
			    1.0f;
			/* code[lo] <= x < code[hi], the first also for every value below it */
			int lo = 0, hi = 255;
			while (hi - lo > 1) {
				int m = (lo + hi) / 2;
				*(code[m] <= x ? &lo : &hi) = m;
			}
			absmax8[i] = (uint8_t)(fabsf(code[hi] - x) < fabsf(x - code[lo]) ? hi : lo);
		}
	}
	*offset_p = offset;
}

static int upload_part(struct param *p, struct dev *d, int slot, const void *bytes, size_t n,
		       struct dev_ref *r_p, struct err *e)
{
	TRY(dev_alloc(d, n, &p->store[slot], e));
	*r_p = DEV_REF(p->store[slot], 0);
	return bytes ? dev_upload(*r_p, bytes, n, e) : 0;
}

static void begin_nf4(struct param *p, const char *name, const int64_t dim[2], int block)
{
	*p = (struct param){ .name = name, .ndim = 2, .dim = { dim[0], dim[1] } };
	p->w = (struct weight){
		.kind = WEIGHT_NF4, .dtype = DT_U8, .rows = dim[0], .cols = dim[1], .block = block
	};
}

int param_init_nf4(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		   const struct nf4_parts *q, struct err *e)
{
	begin_nf4(p, name, dim, q->block);
	uint64_t n = (uint64_t)param_count(p),
		 blocks = (n + (uint64_t)q->block - 1) / (uint64_t)q->block;
	int rc;
	TRYOUT(upload_part(p, d, 0, q->packed, (n + 1) / 2, &p->w.data, e));
	TRYOUT(upload_part(p, d, 1, q->code, 16 * 4, &p->w.code, e));
	if (q->absmax) {
		TRYOUT(upload_part(p, d, 2, q->absmax, blocks * 4, &p->w.absmax, e));
		return 0;
	}
	p->w.offset = q->offset;
	TRYOUT(upload_part(p, d, 2, q->absmax8, blocks, &p->w.absmax, e));
	TRYOUT(upload_part(p, d, 3, q->code2, 256 * 4, &p->w.code2, e));
	TRYOUT(upload_part(p, d, 4, q->absmax2, (blocks + NF4_BLOCK2 - 1) / NF4_BLOCK2 * 4,
			   &p->w.absmax2, e));
	return 0;
out:
	param_release(p);
	return err_prefix(e, "%s", name);
}

/* Rows are quantised in parts that begin at the start of a block, so that besides one part only the
 * scales of the whole weight are in memory. */
int param_quantize_nf4(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		       bool double_quant, param_rows_fn rows, void *ctx, struct err *e)
{
	begin_nf4(p, name, dim, NF4_BLOCK);
	uint64_t n = (uint64_t)param_count(p), blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
	int64_t unit = 1; /* rows after which a row begins with a block again */
	while (unit < NF4_BLOCK && unit * dim[1] % NF4_BLOCK)
		unit *= 2;
	int64_t step = (1 << 20) / dim[1] / unit * unit;
	if (step < unit)
		step = unit;
	if (step > dim[0])
		step = dim[0];
	float *part = mem_array((size_t)(step * dim[1]), sizeof *part),
	      *absmax = mem_array(blocks, sizeof *absmax), *absmax2 = NULL;
	uint8_t *packed = mem_alloc((size_t)(step * dim[1] + 1) / 2), *absmax8 = NULL;
	int rc = 0;
	if (!part || !absmax || !packed) {
		rc = err_nomem(e, (unsigned long long)step * (unsigned long long)dim[1] * 4,
			       "quantising a weight");
		goto out;
	}
	TRYOUT(upload_part(p, d, 0, NULL, (n + 1) / 2, &p->w.data, e));
	for (int64_t r = 0; r < dim[0]; r += step) {
		int64_t some = dim[0] - r < step ? dim[0] - r : step;
		uint64_t first = (uint64_t)r * (uint64_t)dim[1],
			 count = (uint64_t)some * (uint64_t)dim[1];
		TRYOUT(rows(ctx, r, some, part, e));
		nf4_quantize(part, count, packed, absmax + first / NF4_BLOCK);
		struct dev_ref at = p->w.data;
		at.off += first / 2;
		TRYOUT(dev_upload(at, packed, (count + 1) / 2, e));
	}
	TRYOUT(upload_part(p, d, 1, nf4_code, sizeof nf4_code, &p->w.code, e));
	if (!double_quant) {
		TRYOUT(upload_part(p, d, 2, absmax, blocks * 4, &p->w.absmax, e));
		goto out;
	}
	uint64_t blocks2 = (blocks + NF4_BLOCK2 - 1) / NF4_BLOCK2;
	absmax8 = mem_alloc(blocks);
	absmax2 = mem_array(blocks2, sizeof *absmax2);
	if (!absmax8 || !absmax2) {
		rc = err_nomem(e, blocks, "block scales");
		goto out;
	}
	nf4_quantize_absmax(absmax, blocks, absmax8, absmax2, &p->w.offset);
	TRYOUT(upload_part(p, d, 2, absmax8, blocks, &p->w.absmax, e));
	TRYOUT(upload_part(p, d, 3, nf4_code2(), 256 * 4, &p->w.code2, e));
	TRYOUT(upload_part(p, d, 4, absmax2, blocks2 * 4, &p->w.absmax2, e));
out:
	mem_free(part);
	mem_free(absmax);
	mem_free(packed);
	mem_free(absmax8);
	mem_free(absmax2);
	if (rc < 0) {
		param_release(p);
		return err_prefix(e, "%s", name);
	}
	return 0;
}

int nf4_expand_host(const struct param *p, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	const struct weight *w = &p->w;
	uint64_t first = (uint64_t)(row0 * w->cols), n = (uint64_t)(rows * w->cols),
		 block = (uint64_t)w->block;
	uint64_t byte0 = first / 2, bytes = (first + n + 1) / 2 - byte0, blk0 = first / block,
		 nblk = (first + n - 1) / block - blk0 + 1;
	uint64_t two0 = blk0 / NF4_BLOCK2, ntwo = (blk0 + nblk - 1) / NF4_BLOCK2 - two0 + 1;
	uint8_t *packed = mem_alloc(bytes), *absmax8 = mem_alloc(nblk);
	float *absmax = mem_array(nblk, 4), *absmax2 = mem_array(ntwo, 4), code[16], map[256];
	int rc = 0;
	if (!packed || !absmax8 || !absmax || !absmax2) {
		rc = err_nomem(e, bytes, "expanding a weight");
		goto out;
	}
	TRYOUT(dev_download(packed, DEV_REF(w->data.buf, w->data.off + byte0), bytes, e));
	TRYOUT(dev_download(code, w->code, sizeof code, e));
	if (w->code2.buf) {
		TRYOUT(dev_download(absmax8, DEV_REF(w->absmax.buf, w->absmax.off + blk0), nblk,
				    e));
		TRYOUT(dev_download(absmax2, DEV_REF(w->absmax2.buf, w->absmax2.off + two0 * 4),
				    ntwo * 4, e));
		TRYOUT(dev_download(map, w->code2, sizeof map, e));
		for (uint64_t b = 0; b < nblk; b++)
			absmax[b] = map[absmax8[b]] * absmax2[(blk0 + b) / NF4_BLOCK2 - two0] +
				    w->offset;
	} else {
		TRYOUT(dev_download(absmax, DEV_REF(w->absmax.buf, w->absmax.off + blk0 * 4),
				    nblk * 4, e));
	}
	for (uint64_t i = first; i < first + n; i++) {
		unsigned byte = packed[i / 2 - byte0], q = i & 1 ? byte & 15u : byte >> 4;
		dst[i - first] = code[q] * absmax[i / block - blk0];
	}
out:
	mem_free(packed);
	mem_free(absmax8);
	mem_free(absmax);
	mem_free(absmax2);
	return rc;
}
