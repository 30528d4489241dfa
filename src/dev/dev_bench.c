/* SPDX-License-Identifier: Apache-2.0 */
/* dev_bench.c - see dev_bench.h. */
#include "dev/dev_bench.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dev/dev_attn.h"
#include "dev/dev_delta.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 7
#define RUN_NS 2000000 /* a run lasts at least this long */
#define FEW 3          /* runs where one takes longer than SLOW_NS */
#define SLOW_NS 1000000000
#define HEAD_ROWS 256 /* rows of logits at a time: a training step does not hold more either */
#define FILL ((size_t)1 << 20)

struct bench {
	struct dev *d;
	const struct dev_bench_shape *s;
	dev_bench_row_fn row;
	void *ctx;
	double ceiling[DT_COUNT], copy, last; /* of the last row */
	char *fill;                           /* FILL bytes of host memory to upload from */
};

/* One thing to measure: a kernel with its arguments, or a product. */
struct job {
	struct bench *b;
	struct err *e;
	int rc;
	struct dev_buf *buf[16];
	int nbuf;
	union dev_arg arg[32];
	int narg;
	enum dev_kernel kernel;
	enum dtype t;
	struct dev_gemm gemm;
	bool is_gemm;
	int64_t groups;      /* so many products of other numbers, one after the other; 0: one */
	double top;          /* what the rate is held against; 0: the ceiling */
	double bytes, flops; /* of one call; flops 0: held against the copy */
};

/* What a buffer is filled with. */
enum fill { FILL_FLOAT, FILL_BYTES, FILL_ZERO };

static void fill_host(char *p, enum fill how, enum dtype t)
{
	const struct rng_key key = rng_key(1);
	for (size_t i = 0; i < FILL / 4; i++) {
		uint32_t u = rng_u32(key, i);
		float f = rng_unit(u) - 0.5f;
		if (how == FILL_BYTES) {
			memcpy(p + i * 4, &u, 4);
		} else if (t == DT_F32) {
			memcpy(p + i * 4, &f, 4);
		} else {
			uint16_t h[2] = { 0 };
			float two[2] = { f, -f };
			dtype_from_f32(t, two, h, 2);
			memcpy(p + i * 4, h, 4);
		}
	}
}

static struct dev_ref take(struct job *j, int64_t n, enum dtype t, enum fill how)
{
	struct dev_buf *b = NULL;
	const size_t bytes = (size_t)n * dtype_size(t);
	if (j->rc < 0)
		return DEV_NONE;
	j->rc = dev_alloc(j->b->d, bytes, &b, j->e);
	if (j->rc < 0)
		return DEV_NONE;
	j->buf[j->nbuf++] = b;
	if (how == FILL_ZERO) {
		j->rc = dev_zero(DEV_REF(b, 0), bytes, j->e);
	} else {
		fill_host(j->b->fill, how, t);
		for (size_t at = 0; at < bytes && j->rc >= 0; at += FILL)
			j->rc = dev_upload(DEV_REF(b, at), j->b->fill,
					   bytes - at < FILL ? bytes - at : FILL, j->e);
	}
	return DEV_REF(b, 0);
}

static void put_b(struct job *j, int64_t n, enum dtype t)
{
	j->arg[j->narg++].b = take(j, n, t, FILL_FLOAT);
}
static void put_zero(struct job *j, int64_t n, enum dtype t)
{
	j->arg[j->narg++].b = take(j, n, t, FILL_ZERO);
}
static void put_i(struct job *j, int64_t i) { j->arg[j->narg++].i = i; }
static void put_f(struct job *j, double f) { j->arg[j->narg++].f = (float)f; }
static void put_none(struct job *j) { j->arg[j->narg++].b = DEV_NONE; }

/* n int32: 0, step, 2 step, ... modulo `limit` */
static void put_index(struct job *j, int64_t n, int64_t step, int64_t limit)
{
	struct dev_ref r = take(j, n, DT_I32, FILL_ZERO);
	int32_t *v = j->rc < 0 ? NULL : mem_array((size_t)n, sizeof *v);
	if (v) {
		for (int64_t i = 0; i < n; i++)
			v[i] = (int32_t)(i * step % limit);
		j->rc = dev_upload(r, v, (size_t)n * 4, j->e);
		mem_free(v);
	} else if (j->rc >= 0) {
		j->rc = err_nomem(j->e, (unsigned long long)n * 4, "a benchmark");
	}
	j->arg[j->narg++].b = r;
}

/* The starts of the sequences; returns how many there are and the sum of their squared lengths. */
static int64_t put_starts(struct job *j, double *squares_p)
{
	const struct dev_bench_shape *s = j->b->s;
	const int64_t count = (s->n + s->t - 1) / s->t;
	struct dev_ref r = take(j, count + 1, DT_I32, FILL_ZERO);
	*squares_p = 0;
	for (int64_t i = 0; i <= count && j->rc >= 0; i++) {
		const int64_t at = i * s->t < s->n ? i * s->t : s->n,
			      next = at + s->t < s->n ? at + s->t : s->n;
		int32_t v = (int32_t)at;
		*squares_p += (double)(next - at) * (double)(next - at + 1);
		j->rc = dev_upload(DEV_REF(r.buf, (size_t)i * 4), &v, 4, j->e);
	}
	j->arg[j->narg++].b = r;
	return count;
}

static void move(struct dev_ref *r, int64_t numbers, enum dtype t)
{
	r->off += (size_t)numbers * dtype_size(t);
}

/* The products of experts: rows, weights and results of each follow those of the one before. */
static int once_grouped(struct job *j)
{
	struct dev_gemm g = j->gemm;
	for (int64_t i = 0; i < j->groups; i++) {
		TRY(dev_gemm(j->b->d, &g, j->e));
		move(&g.a, g.m * g.k, j->t);
		move(&g.b, g.n * g.k, j->t);
		move(&g.c, g.m * g.n, j->t);
	}
	return 0;
}

static int once(struct job *j)
{
	if (j->groups)
		return once_grouped(j);
	return j->is_gemm ? dev_gemm(j->b->d, &j->gemm, j->e)
			  : dev_launch(j->b->d, j->kernel, j->t, j->arg, j->e);
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Median of RUNS or FEW runs of fn(ctx), in seconds a call; the first call is not counted. */
static int measure(struct dev *d, int (*fn)(void *), void *ctx, double *seconds_p, struct err *e)
{
	double run[RUNS];
	int64_t reps = 1;
	int runs = RUNS;
	TRY(fn(ctx));
	TRY(dev_sync(d, e));
	for (int r = 0; r < runs;) {
		int64_t t0 = clock_now();
		for (int64_t i = 0; i < reps; i++)
			TRY(fn(ctx));
		TRY(dev_sync(d, e));
		int64_t dt = clock_now() - t0;
		if (dt < RUN_NS && !r && reps < (1 << 20)) {
			reps = dt < RUN_NS / 16 ? reps * 8 : reps * 2;
			continue;
		}
		if (!r && dt > SLOW_NS)
			runs = FEW;
		run[r++] = clock_seconds(dt) / (double)reps;
	}
	qsort(run, (size_t)runs, sizeof *run, compare);
	*seconds_p = run[runs / 2];
	return 0;
}

static int once_any(void *job) { return once(job); }

static void drop(struct job *j)
{
	for (int i = 0; i < j->nbuf; i++)
		dev_free(j->buf[i]);
}

static int finish(struct job *j, enum dev_bench_kind kind, const char *name, const char *shape, ...)
	__attribute__((format(printf, 4, 5)));
static int finish(struct job *j, enum dev_bench_kind kind, const char *name, const char *shape, ...)
{
	struct bench *b = j->b;
	struct dev_bench_row row = { .kind = kind, .dtype = j->t, .flops = j->flops > 0 };
	va_list ap;
	va_start(ap, shape);
	vsnprintf(row.shape, sizeof row.shape, shape, ap);
	va_end(ap);
	snprintf(row.name, sizeof row.name, "%s", name);
	if (j->rc >= 0)
		j->rc = measure(b->d, once_any, j, &row.seconds, j->e);
	drop(j);
	if (j->rc < 0)
		return err_prefix(j->e, "bench of %s %s", row.name, row.shape);
	row.rate = (row.flops ? j->flops : j->bytes) / row.seconds * 1e-9;
	const double top = j->top > 0 ? j->top : row.flops ? b->ceiling[j->t] : b->copy;
	row.share = top > 0 ? row.rate / top : 0;
	b->row(b->ctx, &row);
	b->last = row.rate;
	return 0;
}

struct product {
	const char *name;
	bool ta, tb;
	int64_t m, n, k;
	/* of the head: the logits are float32, and their gradients lie in the same rows */
	bool logits;
};

static struct job gemm_job(struct bench *b, enum dtype t, const struct product *p, struct err *e)
{
	const int64_t m = p->m, n = p->n, k = p->k;
	const bool ta = p->ta, tb = p->tb;
	const int64_t lda = ta ? m : p->logits && !tb ? k * 4 / (int64_t)dtype_size(t) : k;
	const enum dtype c = p->logits && tb ? DT_F32 : t;
	struct job j = { .b = b,
			 .e = e,
			 .t = t,
			 .is_gemm = true,
			 .flops = 2.0 * (double)m * (double)n * (double)k };
	j.gemm = (struct dev_gemm){ .m = m,
				    .n = n,
				    .k = k,
				    .ta = ta,
				    .tb = tb,
				    .lda = lda,
				    .ldb = tb ? k : n,
				    .ldc = n,
				    .ab_dtype = t,
				    .c_dtype = c,
				    .alpha = 1 };
	j.gemm.a = take(&j, ta ? k * m : m * lda, t, FILL_FLOAT);
	j.gemm.b = take(&j, n * k, t, FILL_FLOAT);
	j.gemm.c = take(&j, m * n, c, FILL_ZERO);
	return j;
}

/* The last of the dtypes from float32 on that is measured. */
static enum dtype last_of(const struct dev_bench_shape *s) { return s->products ? DT_F32 : DT_F16; }

/* Squares from 512 on, until one takes 60 ms or does not fit. */
static int ceilings(struct bench *b, struct err *e)
{
	for (enum dtype t = DT_F32; t <= last_of(b->s); t++) {
		struct dev_bench_row best = { .kind = BENCH_CEILING,
					      .name = "matmul",
					      .dtype = t,
					      .flops = true,
					      .share = 1 };
		if (!dev_has(b->d, K_axpby, t))
			continue;
		for (int64_t side = 512; side <= 8192; side *= 2) {
			const struct product square = { "", false, true, side, side, side, false };
			struct job j = gemm_job(b, t, &square, e);
			double s = 0;
			if (j.rc >= 0)
				j.rc = measure(b->d, once_any, &j, &s, e);
			drop(&j);
			if (j.rc == ERR_NOMEM && best.rate > 0) {
				err_clear(e);
				break;
			}
			TRY(j.rc);
			if (j.flops / s * 1e-9 > best.rate) {
				best.rate = j.flops / s * 1e-9;
				best.seconds = s;
				snprintf(best.shape, sizeof best.shape, "nt %lldx%lldx%lld",
					 (long long)side, (long long)side, (long long)side);
			}
			if (s > 0.06)
				break;
		}
		b->ceiling[t] = best.rate;
		b->row(b->ctx, &best);
	}
	return 0;
}

struct copying {
	struct dev_buf *from, *to;
	struct err *e;
};

static int copy_once(void *ctx)
{
	struct copying *c = ctx;
	return dev_copy(DEV_REF(c->to, 0), DEV_REF(c->from, 0), c->to->size, c->e);
}

static int copying(struct bench *b, struct err *e)
{
	struct dev_caps caps;
	struct copying c = { .e = e };
	struct dev_bench_row row = { .kind = BENCH_COPY, .name = "copy", .share = 1 };
	int rc = 0;
	TRY(dev_caps(b->d, &caps, e));
	size_t bytes = (size_t)256 << 20;
	if (bytes > caps.mem_free / 8)
		bytes = caps.mem_free / 8;
	TRYOUT(dev_alloc(b->d, bytes, &c.from, e));
	TRYOUT(dev_alloc(b->d, bytes, &c.to, e));
	TRYOUT(dev_zero(DEV_REF(c.from, 0), bytes, e));
	TRYOUT(measure(b->d, copy_once, &c, &row.seconds, e));
	row.rate = b->copy = 2.0 * (double)c.to->size / row.seconds * 1e-9;
	snprintf(row.shape, sizeof row.shape, "%zu MiB", bytes >> 20);
	b->row(b->ctx, &row);
out:
	dev_free(c.from);
	dev_free(c.to);
	return rc;
}

static int products(struct bench *b, enum dtype t, struct err *e)
{
	const struct dev_bench_shape *s = b->s;
	const int64_t q = s->h * s->d, kv = s->g * s->d, head = s->n < HEAD_ROWS ? s->n : HEAD_ROWS;
	/* names as in a layer; forward is X W^T with W [out,in], the gradient of X is dY W, that of
	 * W is dY^T X */
	const struct product list[] = {
		{ "q", false, true, s->n, q, s->c, false },
		{ "k,v", false, true, s->n, kv, s->c, false },
		{ "o", false, true, s->n, s->c, q, false },
		{ "gate,up", false, true, s->n, s->f, s->c, false },
		{ "down", false, true, s->n, s->c, s->f, false },
		{ "head", false, true, head, s->v, s->c, true },
		{ "gate,up dx", false, false, s->n, s->c, s->f, false },
		{ "down dx", false, false, s->n, s->f, s->c, false },
		{ "head dx", false, false, head, s->c, s->v, true },
		{ "gate,up dw", true, false, s->f, s->c, s->n, false },
		{ "lora A", false, true, s->n, s->r, s->c, false },
		{ "lora B", false, true, s->n, q, s->r, false },
		{ "lora dA", true, false, s->r, s->c, s->n, false },
		{ "lora dB", true, false, q, s->r, s->n, false },
		{ "one token", false, true, 1, s->f, s->c, false },
		{ "one token head", false, true, 1, s->v, s->c, false },
	};
	bool found = false;
	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		if (s->only && strcmp(s->only, list[i].name) != 0)
			continue;
		found = true;
		struct job j = gemm_job(b, t, &list[i], e);
		if (list[i].m == 1) { /* bound by reading the weight */
			j.flops = 0;
			j.bytes = (double)list[i].n * (double)list[i].k * dtype_size(t);
		}
		TRY(finish(&j, BENCH_GEMM, list[i].name, "%c%c %lldx%lldx%lld",
			   list[i].ta ? 't' : 'n', list[i].tb ? 't' : 'n', (long long)list[i].m,
			   (long long)list[i].n, (long long)list[i].k));
	}
	return found ? 0
		     : err_set(e, ERR_USAGE,
			       "no product is called '%s'; without it all are measured, and their "
			       "names listed",
			       s->only);
}

/* The experts of a layer of Qwen3-30B-A3B (gate or up): products of few rows each, held against one
 * product of as much work. */
static int experts(struct bench *b, enum dtype t, struct err *e)
{
	enum { GROUPS = 8, C = 2048, F = 768 };
	static const int64_t each[] = { 16, 64, 256 };
	for (size_t i = 0; i < ARRAY_LEN(each); i++) {
		const int64_t m = each[i];
		const struct product whole = { "", false, true, GROUPS * m, F, C, false },
				     one = { "", false, true, m, F, C, false };
		struct job j = gemm_job(b, t, &whole, e);
		TRY(finish(&j, BENCH_GEMM, "experts as one", "nt %lldx%dx%d",
			   (long long)(GROUPS * m), F, C));
		const double plain = b->last;
		j = gemm_job(b, t, &one, e);
		drop(&j);
		j.nbuf = 0;
		j.gemm.a = take(&j, GROUPS * m * C, t, FILL_FLOAT);
		j.gemm.b = take(&j, (int64_t)GROUPS * F * C, t, FILL_FLOAT);
		j.gemm.c = take(&j, GROUPS * m * F, t, FILL_ZERO);
		j.groups = GROUPS;
		j.flops *= GROUPS;
		j.top = plain;
		TRY(finish(&j, BENCH_GEMM, "experts, of it", "nt %dx(%lldx%dx%d)", GROUPS,
			   (long long)m, F, C));
	}
	return 0;
}

static struct job kernel_job(struct bench *b, enum dev_kernel k, enum dtype t, double bytes,
			     struct err *e)
{
	return (struct job){ .b = b, .e = e, .t = t, .kernel = k, .bytes = bytes };
}

#define LL(x) ((long long)(x))

/* Lookups, norms, rope, sums over rows: (N,C) */
static int row_kernels(struct bench *b, enum dtype t, struct err *e)
{
	const struct dev_bench_shape *s = b->s;
	const int64_t n = s->n, c = s->c, z = dtype_size(t);
	const double nc = (double)n * (double)c, q = (double)n * (double)(s->h * s->d);
	static const enum dev_kernel lookups[] = { K_embed_fwd, K_gather_rows, K_scatter_rows };
	for (size_t i = 0; i < ARRAY_LEN(lookups); i++) {
		struct job j = kernel_job(b, lookups[i], t, 2 * nc * (double)z, e);
		const int64_t rows = lookups[i] == K_embed_fwd && s->v > n ? s->v : n;
		put_zero(&j, n * c, t);
		put_b(&j, rows * c, t);
		/* a prime step visits rows in no order, none twice */
		put_index(&j, n, lookups[i] == K_scatter_rows ? 1 : 7919, rows);
		put_i(&j, n);
		put_i(&j, c);
		TRY(finish(&j, BENCH_KERNEL, dev_kernel_name(lookups[i]), "%lldx%lld", LL(n),
			   LL(c)));
	}
	struct job j = kernel_job(b, K_embed_bwd, t, nc * (double)(z + 8), e);
	put_zero(&j, s->v * c, DT_F32);
	put_b(&j, n * c, t);
	put_index(&j, n, 7919, s->v);
	put_i(&j, n);
	put_i(&j, c);
	TRY(finish(&j, BENCH_KERNEL, "embed_bwd", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_rmsnorm_fwd, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_zero(&j, n, DT_F32);
	put_b(&j, n * c, t);
	put_b(&j, c, DT_F32);
	put_none(&j);
	put_i(&j, n);
	put_i(&j, c);
	put_f(&j, 1e-5);
	TRY(finish(&j, BENCH_KERNEL, "rmsnorm_fwd", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_rmsnorm_bwd, t, 4 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_none(&j);
	put_b(&j, n * c, t);
	put_b(&j, n * c, t);
	put_b(&j, c, DT_F32);
	put_b(&j, n, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	put_i(&j, 1);
	TRY(finish(&j, BENCH_KERNEL, "rmsnorm_bwd", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_layernorm_fwd, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_zero(&j, n, DT_F32);
	put_zero(&j, n, DT_F32);
	put_b(&j, n * c, t);
	put_b(&j, c, DT_F32);
	put_b(&j, c, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	put_f(&j, 1e-5);
	TRY(finish(&j, BENCH_KERNEL, "layernorm_fwd", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_act_fwd, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_b(&j, n * c, t);
	put_i(&j, n * c);
	put_i(&j, 1);
	TRY(finish(&j, BENCH_KERNEL, "act_fwd", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_rope, t, 2 * q * (double)z, e);
	put_b(&j, n * s->h * s->d, t);
	put_index(&j, n, 1, s->t);
	put_b(&j, s->d / 2, DT_F32);
	put_i(&j, n);
	put_i(&j, s->h);
	put_i(&j, s->d);
	put_i(&j, s->h * s->d);
	put_i(&j, 1);
	put_f(&j, 1);
	TRY(finish(&j, BENCH_KERNEL, "rope", "%lldx%lldx%lld", LL(n), LL(s->h), LL(s->d)));

	j = kernel_job(b, K_copy_columns, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_b(&j, 3 * n * c, t);
	put_i(&j, n);
	put_i(&j, c);
	put_i(&j, c);
	put_i(&j, 3 * c);
	TRY(finish(&j, BENCH_KERNEL, "copy_columns", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_row_norms, t, nc * 4, e);
	put_zero(&j, n, DT_F32);
	put_b(&j, n * c, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	TRY(finish(&j, BENCH_KERNEL, "row_norms", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_scale_columns, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_b(&j, n * c, t);
	put_b(&j, c, DT_F32);
	put_b(&j, c, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	put_i(&j, 0);
	TRY(finish(&j, BENCH_KERNEL, "scale_columns", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_dot_columns, t, 2 * nc * (double)z, e);
	put_zero(&j, c, DT_F32);
	put_b(&j, n * c, t);
	put_b(&j, n * c, t);
	put_b(&j, c, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	TRY(finish(&j, BENCH_KERNEL, "dot_columns", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_colsum, t, nc * (double)z, e);
	put_zero(&j, c, DT_F32);
	put_b(&j, n * c, t);
	put_i(&j, n);
	put_i(&j, c);
	TRY(finish(&j, BENCH_KERNEL, "colsum", "%lldx%lld", LL(n), LL(c)));

	j = kernel_job(b, K_addbias, t, 2 * nc * (double)z, e);
	put_zero(&j, n * c, t);
	put_zero(&j, c, DT_F32);
	put_i(&j, n);
	put_i(&j, c);
	return finish(&j, BENCH_KERNEL, "addbias", "%lldx%lld", LL(n), LL(c));
}

static int attention(struct bench *b, enum dtype t, struct err *e)
{
	const struct dev_bench_shape *s = b->s;
	const int64_t n = s->n, q = s->h * s->d, kv = s->g * s->d;
	const struct dev_attn shape = { n, (n + s->t - 1) / s->t, s->h, s->g, s->d, 0 };
	const int64_t parts = dev_attn_parts(b->d->units, &shape);
	for (int back = 0; back < 2; back++) {
		struct job j = kernel_job(b, back ? K_attn_bwd : K_attn_fwd, t, 0, e);
		double squares;
		int64_t count;
		if (back) {
			put_zero(&j, n * q, t);
			put_zero(&j, n * kv, t);
			put_zero(&j, n * kv, t);
			put_b(&j, n * q, t);
		} else {
			put_zero(&j, n * q, t);
			put_zero(&j, s->h * n, DT_F32);
		}
		put_b(&j, n * q, t);
		put_b(&j, n * kv, t);
		put_b(&j, n * kv, t);
		if (back) {
			put_b(&j, n * q, t);
			put_b(&j, s->h * n, DT_F32);
			put_zero(&j, (int64_t)dev_attn_bytes(&shape, parts) / 4, DT_F32);
		}
		count = put_starts(&j, &squares);
		if (!back)
			j.arg[j.narg] = j.arg[j.narg - 1], j.narg++;
		put_i(&j, n);
		put_i(&j, count);
		put_i(&j, s->h);
		put_i(&j, s->g);
		put_i(&j, s->d);
		put_i(&j, q);
		put_i(&j, q);
		put_i(&j, kv);
		put_i(&j, kv);
		put_i(&j, 0);
		put_f(&j, 1 / sqrt((double)s->d));
		put_f(&j, 0);
		put_i(&j, parts);
		/* products over the lower triangle: 2 forward, 5 backward, 2 D flops for each pair
		 * that is seen */
		j.flops = (back ? 5 : 2) * (double)q * squares;
		TRY(finish(&j, BENCH_KERNEL, back ? "attn_bwd" : "attn_fwd",
			   "%lldx%lld H %lld/%lld D %lld", LL(count), LL(s->t), LL(s->h), LL(s->g),
			   LL(s->d)));
	}
	return 0;
}

/* With as many heads, of at most DELTA_MOST numbers. */
static int linear_attention(struct bench *b, enum dtype t, struct err *e)
{
	const struct dev_bench_shape *s = b->s;
	const int64_t n = s->n, h = s->h, d = s->d < DELTA_MOST ? s->d : DELTA_MOST;
	const struct dev_delta shape = { n, (n + s->t - 1) / s->t, h, d, d };
	const int64_t size[] = { n,
				 shape.s,
				 h,
				 h,
				 d,
				 d,
				 dev_delta_parts(b->d->units, &shape),
				 dev_delta_chunk(&shape) };
	for (int back = 0; back < 2; back++) {
		struct job j = kernel_job(b, back ? K_delta_bwd : K_delta_fwd, t, 0, e);
		double squares;
		put_zero(&j, (back ? 3 : 1) * n * h * d, t);
		for (int i = 0; i < 4 && back; i++)
			put_zero(&j, n * h, i < 2 ? t : DT_F32);
		if (back)
			put_b(&j, n * h * d, t);
		put_b(&j, 4 * n * h, DT_F32);
		put_b(&j, 3 * n * h * d, t);
		for (int i = 0; i < 4; i++)
			put_b(&j, n * h, i < 2 ? t : DT_F32);
		put_starts(&j, &squares);
		if (back)
			put_zero(&j, (int64_t)dev_delta_bytes(&shape, size[6]) / 4, DT_F32);
		else
			put_none(&j);
		for (int i = 0; i < (back ? 8 : 6); i++)
			put_i(&j, size[i]);
		j.flops = (back ? 20 : 7) * (double)(n * h * d * d);
		TRY(finish(&j, BENCH_KERNEL, back ? "delta_bwd" : "delta_fwd",
			   "%lldx%lld H %lld D %lld", LL(shape.s), LL(s->t), LL(h), LL(d)));
	}
	return 0;
}

/* Elementwise, and what goes over weights or logits */
static int other_kernels(struct bench *b, enum dtype t, struct err *e)
{
	const struct dev_bench_shape *s = b->s;
	const int64_t n = s->n * s->f, z = dtype_size(t),
		      rows = s->n < HEAD_ROWS ? s->n : HEAD_ROWS;
	static const struct {
		enum dev_kernel k[2]; /* forward, backward */
		const char *name[2];
	} gated[] = { { { K_swiglu_fwd, K_swiglu_bwd }, { "swiglu_fwd", "swiglu_bwd" } },
		      { { K_geglu_fwd, K_geglu_bwd }, { "geglu_fwd", "geglu_bwd" } } };
	struct job j;
	for (int i = 0; i < 4; i++) {
		const int back = i % 2;
		j = kernel_job(b, gated[i / 2].k[back], t, (back ? 5.0 : 3.0) * (double)(n * z), e);
		for (int k = 0; k < (back ? 5 : 3); k++)
			put_b(&j, n, t);
		for (int k = 0; k < 3; k++) /* one row */
			put_i(&j, n);
		TRY(finish(&j, BENCH_KERNEL, gated[i / 2].name[back], "%lld", LL(n)));
	}

	j = kernel_job(b, K_axpby, t, 3.0 * (double)(n * z), e);
	put_b(&j, n, t);
	put_b(&j, n, t);
	put_i(&j, n);
	put_f(&j, 0.5);
	put_f(&j, 0.5);
	TRY(finish(&j, BENCH_KERNEL, "axpby", "%lld", LL(n)));

	j = kernel_job(b, K_dropout, t, 2.0 * (double)(s->n * s->c * z), e);
	put_zero(&j, s->n * s->c, t);
	put_b(&j, s->n * s->c, t);
	put_zero(&j, 2 * s->n, DT_F32); /* places: row 0, offset 0 */
	put_i(&j, s->n);
	put_i(&j, s->c);
	put_i(&j, 0);
	put_f(&j, 0.05);
	j.arg[j.narg++].u = 1;
	TRY(finish(&j, BENCH_KERNEL, "dropout", "%lld", LL(s->n * s->c)));

	if (t != DT_F32) {
		j = kernel_job(b, K_cast, t, (double)(n * (4 + z)), e);
		put_zero(&j, n, t);
		put_b(&j, n, DT_F32);
		put_i(&j, n);
		put_i(&j, t);
		put_i(&j, DT_F32);
		TRY(finish(&j, BENCH_KERNEL, "cast", "%lld", LL(n)));
	}

	j = kernel_job(b, K_xent, t, (double)(rows * s->v * (4 + z)), e);
	put_zero(&j, rows, DT_F32);
	put_zero(&j, rows * s->v, t);
	put_b(&j, rows * s->v, DT_F32);
	put_index(&j, rows, 1, s->v);
	put_none(&j);
	put_none(&j);
	put_i(&j, rows);
	put_i(&j, s->v);
	put_i(&j, s->v);
	put_i(&j, s->v);
	put_f(&j, 1);
	TRY(finish(&j, BENCH_KERNEL, "xent", "%lldx%lld", LL(rows), LL(s->v)));

	const int64_t w = s->f * s->c;
	j = kernel_job(b, K_nf4_dequant, t, (double)w * (0.5 + (double)z), e);
	put_zero(&j, w, t);
	j.arg[j.narg++].b = take(&j, (w + 1) / 2, DT_U8, FILL_BYTES);
	put_b(&j, (w + 63) / 64, DT_F32);
	put_b(&j, 16, DT_F32);
	put_none(&j);
	put_none(&j);
	put_i(&j, s->c);
	put_i(&j, 0);
	put_i(&j, s->f);
	put_i(&j, 0);
	put_i(&j, s->c);
	put_i(&j, s->c);
	put_i(&j, 64);
	put_f(&j, 0);
	return finish(&j, BENCH_KERNEL, "nf4_dequant", "%lldx%lld", LL(s->f), LL(s->c));
}

/* Those of the optimizer are float32 only. */
static int optimizer_kernels(struct bench *b, struct err *e)
{
	const int64_t n = b->s->f * b->s->c;
	struct job j = kernel_job(b, K_sqnorm, DT_F32, 4.0 * (double)n, e);
	put_zero(&j, (n + 4095) / 4096, DT_F32);
	put_b(&j, n, DT_F32);
	put_i(&j, n);
	TRY(finish(&j, BENCH_KERNEL, "sqnorm", "%lld", LL(n)));

	static const double adam[] = { 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.1, 1 };
	j = kernel_job(b, K_adamw, DT_F32, 28.0 * (double)n, e);
	put_b(&j, n, DT_F32);
	put_b(&j, n, DT_F32);
	put_zero(&j, n, DT_F32);
	put_b(&j, n, DT_F32);
	put_i(&j, n);
	for (size_t i = 0; i < ARRAY_LEN(adam); i++)
		put_f(&j, adam[i]);
	TRY(finish(&j, BENCH_KERNEL, "adamw", "%lld", LL(n)));

	static const double sgd[] = { 1e-3, 0.9, 0.01, 1 };
	j = kernel_job(b, K_sgd, DT_F32, 20.0 * (double)n, e);
	for (int i = 0; i < 3; i++)
		put_b(&j, n, DT_F32);
	put_i(&j, n);
	for (size_t i = 0; i < ARRAY_LEN(sgd); i++)
		put_f(&j, sgd[i]);
	return finish(&j, BENCH_KERNEL, "sgd", "%lld", LL(n));
}

int dev_bench(struct dev *d, const struct dev_bench_shape *s, dev_bench_row_fn row, void *ctx,
	      struct err *e)
{
	struct bench b = { .d = d, .s = s, .row = row, .ctx = ctx };
	int rc = 0;
	if (s->c < 1 || s->f < 1 || s->h < 1 || s->g < 1 || s->h % s->g || s->d < 2 || s->d % 2 ||
	    s->v < 1 || s->n < 0 || s->t < 1 || s->r < 1)
		return err_set(e, ERR_USAGE,
			       "bench: sizes must be positive, heads a multiple of key heads, the "
			       "head width even");
	b.fill = mem_alloc(FILL);
	if (!b.fill)
		return err_nomem(e, FILL, "a benchmark");
	TRYOUT(ceilings(&b, e));
	TRYOUT(copying(&b, e));
	for (enum dtype t = DT_F32; s->n && t <= last_of(s); t++) {
		if (!dev_has(d, K_axpby, t))
			continue;
		TRYOUT(products(&b, t, e));
		if (!s->only)
			TRYOUT(experts(&b, t, e));
		if (s->products)
			continue;
		TRYOUT(row_kernels(&b, t, e));
		TRYOUT(attention(&b, t, e));
		TRYOUT(linear_attention(&b, t, e));
		TRYOUT(other_kernels(&b, t, e));
	}
	if (s->n && !s->products)
		TRYOUT(optimizer_kernels(&b, e));
out:
	mem_free(b.fill);
	return rc;
}
