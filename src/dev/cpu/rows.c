/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - kernels over rows of (N,C): lookups, RMSNorm, column sums, bias, rotary embedding.
 *
 * A sum over rows (dw, db, dtable) is parallel over blocks of columns: a block is summed by one
 * thread from the first row to the last, BLOCK rows at a time so that long sums keep their
 * accuracy. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

#define COLS 64   /* columns of a block in sums over rows */
#define BLOCK 128 /* rows of a partial sum */

struct rows {
	void *y, *y2;
	const void *x, *dy, *add;
	const float *w, *rstd;
	float *f;
	const int32_t *idx;
	int64_t n, c, per; /* rows, width, rows in a chunk */
	float eps, plus;
	bool bf, acc, scatter;
};

/* Rows in a chunk: about 16 K elements. */
static int64_t rows_per(int64_t c) { return c > 16384 ? 1 : 16384 / (c ? c : 1); }
static int64_t rows_chunks(const struct rows *r) { return (r->n + r->per - 1) / r->per; }
static int64_t col_blocks(int64_t c) { return (c + COLS - 1) / COLS; }

#define ROWS_OF(r, i)                                                                              \
	const int64_t r0 = (i) * (r)->per, r1 = r0 + (r)->per < (r)->n ? r0 + (r)->per : (r)->n;

#define BY_DTYPE(body)                                                                             \
	static void body##_chunk(void *ctx, int64_t i, int thread)                                 \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct rows *r = ctx;                                                        \
		if (r->bf)                                                                         \
			body(r, i, true);                                                          \
		else                                                                               \
			body(r, i, false);                                                         \
	}

static void take_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct rows *r = ctx;
	ROWS_OF(r, i)
	const size_t size = (size_t)r->c * (r->bf ? 2 : 4);
	for (int64_t n = r0; n < r1; n++) {
		size_t there = (size_t)r->idx[n] * size, here = (size_t)n * size;
		memcpy((char *)r->y + (r->scatter ? there : here),
		       (const char *)r->x + (r->scatter ? here : there), size);
	}
}

static int take(struct cpu *c, enum dtype t, const union dev_arg *a, bool scatter)
{
	struct rows r = { .y = cpu_ptr(a[0]),
			  .x = cpu_ptr(a[1]),
			  .idx = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .c = a[4].i,
			  .per = rows_per(a[4].i),
			  .bf = t == DT_BF16,
			  .scatter = scatter };
	cpu_par(c, rows_chunks(&r), take_chunk, &r);
	return 0;
}

int CPU_SYM(cpu_embed_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return take(c, t, a, false);
}

int CPU_SYM(cpu_gather_rows)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return take(c, t, a, false);
}

int CPU_SYM(cpu_scatter_rows)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	return take(c, t, a, true);
}

struct columns {
	char *y;
	const char *x;
	int64_t n, per;
	size_t row, ldy, ldx; /* bytes */
};

static void columns_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct columns *r = ctx;
	ROWS_OF(r, i)
	for (int64_t n = r0; n < r1; n++)
		memcpy(r->y + (size_t)n * r->ldy, r->x + (size_t)n * r->ldx, r->row);
}

int CPU_SYM(cpu_copy_columns)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	const size_t size = t == DT_BF16 ? 2 : 4;
	struct columns r = { .y = cpu_ptr(a[0]),
			     .x = cpu_ptr(a[1]),
			     .n = a[2].i,
			     .per = rows_per(a[3].i),
			     .row = (size_t)a[3].i * size,
			     .ldy = (size_t)a[4].i * size,
			     .ldx = (size_t)a[5].i * size };
	cpu_par(c, (r.n + r.per - 1) / r.per, columns_chunk, &r);
	return 0;
}

/* y and x, or dx and dy: a row of c numbers for each token, and one for each of its heads, ld
 * apart. */
struct heads {
	void *y;
	const void *x;
	int64_t n, per, h, c, ld;
	bool bf, acc;
};

static struct heads heads_of(enum dtype t, const union dev_arg *a)
{
	return (struct heads){ .y = cpu_ptr(a[0]),
			       .x = cpu_ptr(a[1]),
			       .n = a[2].i,
			       .h = a[3].i,
			       .c = a[4].i,
			       .ld = a[5].i,
			       .per = rows_per(a[3].i * a[4].i),
			       .bf = t == DT_BF16 };
}

static void spread_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct heads *r = ctx;
	ROWS_OF(r, i)
	const size_t size = r->bf ? 2 : 4, row = (size_t)r->c * size;
	for (int64_t k = r0 * r->h; k < r1 * r->h; k++)
		memcpy((char *)r->y + (size_t)(k * r->ld) * size,
		       (const char *)r->x + (size_t)(k / r->h) * row, row);
}

int CPU_SYM(cpu_spread)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct heads r = heads_of(t, a);
	cpu_par(c, (r.n + r.per - 1) / r.per, spread_chunk, &r);
	return 0;
}

INLINE void fold(const struct heads *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	for (int64_t n = r0; n < r1; n++)
		for (int64_t j = 0; j < r->c; j += VW) {
			vf sum = { 0 };
			for (int64_t h = 0; h < r->h; h++)
				sum += ldm(r->x, (n * r->h + h) * r->ld + j, r->c - j, bf);
			if (r->acc)
				sum += ldm(r->y, n * r->c + j, r->c - j, bf);
			stm(r->y, n * r->c + j, sum, r->c - j, bf);
		}
}

static void fold_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct heads *r = ctx;
	if (r->bf)
		fold(r, i, true);
	else
		fold(r, i, false);
}

int CPU_SYM(cpu_fold)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct heads r = heads_of(t, a);
	r.acc = a[6].i != 0;
	cpu_par(c, (r.n + r.per - 1) / r.per, fold_chunk, &r);
	return 0;
}

INLINE void embed_bwd(const struct rows *r, int64_t i, const bool bf)
{
	const int64_t c0 = i * COLS, c1 = c0 + COLS < r->c ? c0 + COLS : r->c;
	for (int64_t n = 0; n < r->n; n++) {
		float *d = r->f + (int64_t)r->idx[n] * r->c;
		for (int64_t j = c0; j < c1; j += VW)
			stm(d, j, ldm(d, j, c1 - j, false) + ldm(r->dy, n * r->c + j, c1 - j, bf),
			    c1 - j, false);
	}
}
BY_DTYPE(embed_bwd)

int CPU_SYM(cpu_embed_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .f = cpu_ptr(a[0]),
			  .dy = cpu_ptr(a[1]),
			  .idx = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .c = a[4].i,
			  .bf = t == DT_BF16 };
	cpu_par(c, col_blocks(r.c), embed_bwd_chunk, &r);
	return 0;
}

INLINE void rmsnorm_fwd(const struct rows *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	const int64_t c = r->c;
	for (int64_t n = r0; n < r1; n++) {
		vf s0 = { 0 }, s1 = { 0 };
		int64_t j = 0;
		for (; j + 2 * VW <= c; j += 2 * VW) {
			vf v0 = ld(r->x, n * c + j, bf), v1 = ld(r->x, n * c + j + VW, bf);
			s0 += v0 * v0;
			s1 += v1 * v1;
		}
		for (; j < c; j += VW) {
			vf v = ldm(r->x, n * c + j, c - j, bf);
			s0 += v * v;
		}
		float rstd = 1.0f / sqrtf(v_sum(s0 + s1) / (float)c + r->eps);
		r->f[n] = rstd;
		vf k = v_set(rstd), plus = v_set(r->plus);
		for (j = 0; j < c; j += VW) {
			vf v = ldm(r->x, n * c + j, c - j, bf) * k, w = ldm(r->w, j, c - j, false);
			v = r->plus == 0 ? v_round(v, bf) * w : v * (w + plus);
			if (r->add)
				v = v_round(v, bf) + ldm(r->add, n * c + j, c - j, bf);
			stm(r->y, n * c + j, v, c - j, bf);
		}
	}
}
BY_DTYPE(rmsnorm_fwd)

int CPU_SYM(cpu_rmsnorm_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .y = cpu_ptr(a[0]),
			  .f = cpu_ptr(a[1]),
			  .x = cpu_ptr(a[2]),
			  .w = cpu_ptr(a[3]),
			  .add = cpu_ptr(a[4]),
			  .n = a[5].i,
			  .c = a[6].i,
			  .eps = a[7].f,
			  .plus = a[8].f,
			  .per = rows_per(a[6].i),
			  .bf = t == DT_BF16 };
	cpu_par(c, rows_chunks(&r), rmsnorm_fwd_chunk, &r);
	return 0;
}

/* With xh = x*rstd and g = dy*w: dx = rstd * (g - xh * mean(g*xh)). */
INLINE void rmsnorm_dx(const struct rows *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	const int64_t c = r->c;
	const vf plus = v_set(r->plus);
	for (int64_t n = r0; n < r1; n++) {
		vf s = { 0 };
		for (int64_t j = 0; j < c; j += VW)
			s += ldm(r->dy, n * c + j, c - j, bf) *
			     (ldm(r->w, j, c - j, false) + plus) * ldm(r->x, n * c + j, c - j, bf);
		float rstd = r->rstd[n];
		vf k = v_set(rstd), m = v_set(v_sum(s) / (float)c * rstd * rstd * rstd);
		for (int64_t j = 0; j < c; j += VW) {
			vf d = ldm(r->dy, n * c + j, c - j, bf) *
				       (ldm(r->w, j, c - j, false) + plus) * k -
			       ldm(r->x, n * c + j, c - j, bf) * m;
			if (r->acc)
				d += ldm(r->y, n * c + j, c - j, bf);
			stm(r->y, n * c + j, d, c - j, bf);
		}
	}
}
BY_DTYPE(rmsnorm_dx)

/* A row of c numbers times the sigmoid of its gate: x is the gates, add the rows. */
INLINE void head_glu_fwd(const struct rows *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	const int64_t c = r->c;
	const vf one = v_set(1.0f);
	for (int64_t n = r0; n < r1; n++) {
		const vf s = one / (one + v_exp(v_set(-ld1(r->x, n, bf))));
		for (int64_t j = 0; j < c; j += VW)
			stm(r->y, n * c + j, ldm(r->add, n * c + j, c - j, bf) * s, c - j, bf);
	}
}
BY_DTYPE(head_glu_fwd)

int CPU_SYM(cpu_head_glu_fwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .y = cpu_ptr(a[0]),
			  .x = cpu_ptr(a[1]),
			  .add = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .c = a[4].i,
			  .per = rows_per(a[4].i),
			  .bf = t == DT_BF16 };
	cpu_par(c, rows_chunks(&r), head_glu_fwd_chunk, &r);
	return 0;
}

/* y is the gradient of the gates, y2 that of the rows. */
INLINE void head_glu_bwd(const struct rows *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	const int64_t c = r->c;
	const vf one = v_set(1.0f);
	for (int64_t n = r0; n < r1; n++) {
		const vf s = one / (one + v_exp(v_set(-ld1(r->x, n, bf))));
		vf sum = { 0 };
		for (int64_t j = 0; j < c; j += VW) {
			const vf dy = ldm(r->dy, n * c + j, c - j, bf);
			sum += dy * ldm(r->add, n * c + j, c - j, bf);
			stm(r->y2, n * c + j, dy * s, c - j, bf);
		}
		st1(r->y, n, v_sum(sum) * s[0] * (1.0f - s[0]), bf);
	}
}
BY_DTYPE(head_glu_bwd)

int CPU_SYM(cpu_head_glu_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .y = cpu_ptr(a[0]),
			  .y2 = cpu_ptr(a[1]),
			  .dy = cpu_ptr(a[2]),
			  .x = cpu_ptr(a[3]),
			  .add = cpu_ptr(a[4]),
			  .n = a[5].i,
			  .c = a[6].i,
			  .per = rows_per(a[6].i),
			  .bf = t == DT_BF16 };
	cpu_par(c, rows_chunks(&r), head_glu_bwd_chunk, &r);
	return 0;
}

/* f(C) += sum over rows of dy * (x*rstd), or of dy alone when there is no x */
INLINE void col_sums(const struct rows *r, int64_t i, const bool bf)
{
	const int64_t c0 = i * COLS, c1 = c0 + COLS < r->c ? c0 + COLS : r->c;
	vf total[COLS / VW];
	for (int64_t j = c0; j < c1; j += VW)
		total[(j - c0) / VW] = ldm(r->f, j, c1 - j, false);
	for (int64_t b = 0; b < r->n; b += BLOCK) {
		int64_t end = b + BLOCK < r->n ? b + BLOCK : r->n;
		vf part[COLS / VW] = { { 0 } };
		for (int64_t n = b; n < end; n++) {
			vf k = v_set(r->x ? r->rstd[n] : 0);
			for (int64_t j = c0; j < c1; j += VW) {
				vf d = ldm(r->dy, n * r->c + j, c1 - j, bf);
				if (r->x)
					d *= ldm(r->x, n * r->c + j, c1 - j, bf) * k;
				part[(j - c0) / VW] += d;
			}
		}
		for (int64_t j = c0; j < c1; j += VW)
			total[(j - c0) / VW] += part[(j - c0) / VW];
	}
	for (int64_t j = c0; j < c1; j += VW)
		stm(r->f, j, total[(j - c0) / VW], c1 - j, false);
}
BY_DTYPE(col_sums)

int CPU_SYM(cpu_rmsnorm_bwd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .y = cpu_ptr(a[0]),
			  .f = cpu_ptr(a[1]),
			  .dy = cpu_ptr(a[2]),
			  .x = cpu_ptr(a[3]),
			  .w = cpu_ptr(a[4]),
			  .rstd = cpu_ptr(a[5]),
			  .n = a[6].i,
			  .c = a[7].i,
			  .acc = a[8].i != 0,
			  .plus = a[9].f,
			  .per = rows_per(a[7].i),
			  .bf = t == DT_BF16 };
	/* dw before dx: dx may lie over dy */
	if (r.f)
		cpu_par(c, col_blocks(r.c), col_sums_chunk, &r);
	cpu_par(c, rows_chunks(&r), rmsnorm_dx_chunk, &r);
	return 0;
}

int CPU_SYM(cpu_colsum)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .f = cpu_ptr(a[0]),
			  .dy = cpu_ptr(a[1]),
			  .n = a[2].i,
			  .c = a[3].i,
			  .bf = t == DT_BF16 };
	cpu_par(c, col_blocks(r.c), col_sums_chunk, &r);
	return 0;
}

INLINE void addbias(const struct rows *r, int64_t i, const bool bf)
{
	ROWS_OF(r, i)
	for (int64_t n = r0; n < r1; n++)
		for (int64_t j = 0; j < r->c; j += VW)
			stm(r->y, n * r->c + j,
			    ldm(r->y, n * r->c + j, r->c - j, bf) + ldm(r->w, j, r->c - j, false),
			    r->c - j, bf);
}
BY_DTYPE(addbias)

int CPU_SYM(cpu_addbias)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct rows r = { .y = cpu_ptr(a[0]),
			  .w = cpu_ptr(a[1]),
			  .n = a[2].i,
			  .c = a[3].i,
			  .per = rows_per(a[3].i),
			  .bf = t == DT_BF16 };
	cpu_par(c, rows_chunks(&r), addbias_chunk, &r);
	return 0;
}

struct rope {
	void *x;
	const int32_t *pos, *table;
	const float *freq;
	int64_t n, h, d, ld, per, rot;
	float dir, scale;
	bool bf, near;
	float *sc; /* per thread: cos(R/2), sin(R/2) and angles, each padded to VW */
	int64_t half;
};

/* sin and cos of n angles: reduced to [-pi/4, pi/4] in double precision, then Taylor polynomials
 * (remainder below 2^-26). */
INLINE void sincos_n(const float *restrict a, float *restrict co, float *restrict si, int64_t n,
		     float scale, float dir)
{
	for (int64_t i = 0; i < n; i++) {
		double x = a[i], t = x * 0.6366197723675814 + 0x1.8p52, q = t - 0x1.8p52;
		double r = x - q * 1.5707963267948966;
		int64_t bits;
		memcpy(&bits, &t, 8);
		int32_t k = (int32_t)bits;
		float y = (float)(r - q * 6.123233995736766e-17), z = y * y;
		float s =
			y +
			y * z *
				(-0.166666667f +
				 z * (8.33333333e-3f + z * (-1.98412698e-4f + z * 2.75573192e-6f)));
		float c =
			1.0f + z * (-0.5f + z * (4.16666667e-2f +
						 z * (-1.38888889e-3f +
						      z * (2.48015873e-5f - z * 2.75573192e-7f))));
		float s1 = k & 1 ? c : s, c1 = k & 1 ? s : c;
		si[i] = (k & 2 ? -s1 : s1) * scale * dir;
		co[i] = ((k + 1) & 2 ? -c1 : c1) * scale;
	}
}

INLINE void rope_rows(const struct rope *r, int64_t i, int thread, const bool bf)
{
	ROWS_OF(r, i)
	const int64_t half = r->rot / 2;
	float *co = r->sc + thread * 3 * r->half, *si = co + r->half, *angle = si + r->half;
	for (int64_t n = r0; n < r1; n++) {
		const float *freq = r->freq + (r->table ? r->table[n] * half : 0);
		for (int64_t j = 0; j < half; j++)
			angle[j] = (float)r->pos[n] * freq[j];
		sincos_n(angle, co, si, half, r->scale, r->dir);
		for (int64_t h = 0; h < r->h; h++) {
			const int64_t at = n * r->ld + h * r->d;
			for (int64_t j = 0; r->near && j < half; j++) {
				const float a = ld1(r->x, at + 2 * j, bf),
					    b = ld1(r->x, at + 2 * j + 1, bf);
				st1(r->x, at + 2 * j, a * co[j] - b * si[j], bf);
				st1(r->x, at + 2 * j + 1, b * co[j] + a * si[j], bf);
			}
			for (int64_t j = 0; !r->near && j < half; j += VW) {
				int64_t m = half - j;
				vf a = ldm(r->x, at + j, m, bf),
				   b = ldm(r->x, at + half + j, m, bf), c = ld(co, j, false),
				   s = ld(si, j, false);
				stm(r->x, at + j, a * c - b * s, m, bf);
				stm(r->x, at + half + j, b * c + a * s, m, bf);
			}
		}
	}
}

static void rope_chunk(void *ctx, int64_t i, int thread)
{
	const struct rope *r = ctx;
	if (r->bf)
		rope_rows(r, i, thread, true);
	else
		rope_rows(r, i, thread, false);
}

int CPU_SYM(cpu_rope)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct rope r = { .x = cpu_ptr(a[0]),
			  .pos = cpu_ptr(a[1]),
			  .freq = cpu_ptr(a[2]),
			  .n = a[3].i,
			  .h = a[4].i,
			  .d = a[5].i,
			  .ld = a[6].i,
			  .dir = a[7].i < 0 ? -1.0f : 1.0f,
			  .scale = a[8].f,
			  .rot = a[9].i ? a[9].i : a[5].i,
			  .near = a[10].i != 0,
			  .table = cpu_ptr(a[11]),
			  .bf = t == DT_BF16 };
	if (r.rot % 2 || r.rot > r.d)
		return err_set(e, ERR_INTERNAL, "rope over %lld numbers of a head of %lld",
			       (long long)r.rot, (long long)r.d);
	r.half = (r.rot / 2 + VW - 1) / VW * VW;
	r.per = rows_per(r.h * r.d);
	size_t bytes = (size_t)c->threads * 3 * (size_t)r.half * sizeof(float);
	r.sc = cpu_scratch(c, bytes);
	if (!r.sc)
		return err_nomem(e, bytes, "rope");
	cpu_par(c, (r.n + r.per - 1) / r.per, rope_chunk, &r);
	return 0;
}
