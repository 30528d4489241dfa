/* SPDX-License-Identifier: Apache-2.0 */
/* dev_probe.c - see dev_probe.h. */
#include "dev/dev_probe.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum {
	SIDE_LEAST = 256,
	SIDE_MOST = 8192,
	COPY_MOST = 256 << 20,
	WIRE_MOST = 64 << 20,
	PATTERN = 1 << 20,
	RUNS = 3
};
static const double long_enough = 0.03; /* seconds of one run */

struct probe {
	struct dev *d;
	struct dev_gemm gemm;
	struct dev_buf *a, *b, *c;
	unsigned char *host;
	size_t bytes;
	struct err *e;
};

static int run_gemm(struct probe *p) { return dev_gemm(p->d, &p->gemm, p->e); }
static int run_copy(struct probe *p)
{
	return dev_copy(DEV_REF(p->b, 0), DEV_REF(p->a, 0), p->bytes, p->e);
}
static int run_upload(struct probe *p)
{
	return dev_upload(DEV_REF(p->a, 0), p->host, p->bytes, p->e);
}
static int run_download(struct probe *p)
{
	return dev_download(p->host, DEV_REF(p->a, 0), p->bytes, p->e);
}

/* Seconds of the best of a few runs; the first one, which may compile, does not count. */
static int best(struct probe *p, int (*run)(struct probe *), double *seconds_p)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i <= RUNS; i++) {
		const int64_t begin = clock_now();
		TRY(run(p));
		TRY(dev_sync(p->d, p->e));
		const int64_t took = clock_now() - begin;
		if (i && took < least)
			least = took > 0 ? took : 1;
		if (i && clock_seconds(took) > 3 * long_enough)
			break;
	}
	*seconds_p = clock_seconds(least);
	return 0;
}

static void drop(struct probe *p)
{
	dev_free(p->a);
	dev_free(p->b);
	dev_free(p->c);
	p->a = p->b = p->c = NULL;
}

/* Numbers between -1 and 1 in every format: products of zeros would draw less power, and run
 * faster, than real ones. */
static int fill(struct probe *p, struct dev_buf *b, enum dtype t)
{
	const size_t n = b->size < PATTERN ? b->size : PATTERN;
	for (size_t i = 0; i < n / dtype_size(t); i++) {
		const float v = (float)(int)(i * 2654435761u % 2001u) / 1000.0f - 1.0f;
		dtype_from_f32(t, &v, p->host + i * dtype_size(t), 1);
	}
	TRY(dev_upload(DEV_REF(b, 0), p->host, n, p->e));
	for (size_t at = n; at < b->size; at *= 2) {
		const size_t some = at < b->size - at ? at : b->size - at;
		TRY(dev_copy(DEV_REF(b, at), DEV_REF(b, 0), some, p->e));
	}
	return 0;
}

static int product(struct probe *p, enum dtype t, int64_t side, double *seconds_p)
{
	const size_t bytes = (size_t)(side * side) * dtype_size(t);
	TRY(dev_alloc(p->d, bytes, &p->a, p->e));
	TRY(dev_alloc(p->d, bytes, &p->b, p->e));
	TRY(dev_alloc(p->d, bytes, &p->c, p->e));
	TRY(fill(p, p->a, t));
	TRY(fill(p, p->b, t));
	p->gemm = (struct dev_gemm){ .m = side,
				     .n = side,
				     .k = side,
				     .tb = true,
				     .a = DEV_REF(p->a, 0),
				     .b = DEV_REF(p->b, 0),
				     .c = DEV_REF(p->c, 0),
				     .lda = side,
				     .ldb = side,
				     .ldc = side,
				     .ab_dtype = t,
				     .c_dtype = t,
				     .alpha = 1 };
	return best(p, run_gemm, seconds_p);
}

static int rate_of(struct probe *p, enum dtype t, double *rate_p)
{
	*rate_p = 0;
	for (int64_t side = SIDE_LEAST; side <= SIDE_MOST; side *= 2) {
		double s = 0;
		int rc = product(p, t, side, &s);
		drop(p);
		if (rc == ERR_NOMEM && *rate_p > 0) {
			err_clear(p->e);
			return 0;
		}
		if (rc < 0)
			return rc;
		const double rate = 2.0 * (double)side * (double)side * (double)side / s;
		if (rate > *rate_p)
			*rate_p = rate;
		if (s > long_enough)
			break;
	}
	return 0;
}

static int rates_of_moving(struct probe *p, uint64_t mem_free, struct dev_probe *r)
{
	double s = 0;
	p->bytes = mem_free / 8 < COPY_MOST ? mem_free / 8 : COPY_MOST;
	TRY(dev_alloc(p->d, p->bytes, &p->a, p->e));
	TRY(dev_alloc(p->d, p->bytes, &p->b, p->e));
	TRY(fill(p, p->a, DT_F32));
	TRY(best(p, run_copy, &s));
	r->copy = 2.0 * (double)p->bytes / s;
	if (p->bytes > WIRE_MOST)
		p->bytes = WIRE_MOST;
	TRY(best(p, run_upload, &s));
	r->upload = (double)p->bytes / s;
	TRY(best(p, run_download, &s));
	r->download = (double)p->bytes / s;
	return 0;
}

int dev_probe(struct dev *d, struct dev_probe *p_p, struct err *e)
{
	struct probe p = { .d = d, .e = e };
	struct dev_probe r = { 0 };
	struct dev_caps caps;
	int rc;
	TRY(dev_caps(d, &caps, e));
	r.others_known = caps.mem_seen;
	if (caps.mem_seen && caps.mem_total > caps.mem_free + d->mem_used)
		r.others = caps.mem_total - caps.mem_free - d->mem_used;
	p.host = mem_zalloc(WIRE_MOST);
	if (!p.host)
		return err_nomem(e, WIRE_MOST, "probing a device");
	for (enum dtype t = DT_F32; t <= DT_F16; t++)
		if (dev_has(d, K_axpby, t))
			TRYOUT(rate_of(&p, t, &r.type[t].rate));
	r.type[DT_F32].native = r.type[DT_F32].rate > 0;
	for (enum dtype t = DT_BF16; t <= DT_F16; t++)
		r.type[t].native = (t == DT_BF16 ? caps.bf16 : caps.f16) &&
				   r.type[t].rate >= 0.5 * r.type[DT_F32].rate;
	TRYOUT(rates_of_moving(&p, caps.mem_free, &r));
	*p_p = r;
out:
	drop(&p);
	mem_free(p.host);
	return rc;
}
