/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - what optimizers do with a parameter, on the CPU. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include <math.h>

typedef float f32;
#define TABLE static const
#include "dev/kernel/dynamic8.k"

#define CHUNK 8192

static int64_t chunks(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

struct update {
	float *p, *m, *v;
	uint8_t *mq, *vq;
	const float *g;
	int64_t n;
	float lr, b1, b2, eps, wd, bc1, bc2, gscale;
};

static void adamw_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct update *u = ctx;
	const int64_t i0 = i * CHUNK, i1 = i0 + CHUNK < u->n ? i0 + CHUNK : u->n;
	const vf b1 = v_set(u->b1), b2 = v_set(u->b2), a1 = v_set(1.0f - u->b1),
		 a2 = v_set(1.0f - u->b2), gs = v_set(u->gscale), eps = v_set(u->eps),
		 lr = v_set(u->lr), decay = v_set(u->lr * u->wd), r1 = v_set(1.0f / u->bc1),
		 r2 = v_set(1.0f / u->bc2);
	for (int64_t j = i0; j < i1; j += VW) {
		int64_t w = i1 - j;
		vf g = ldm(u->g, j, w, false) * gs, p = ldm(u->p, j, w, false);
		vf m = b1 * ldm(u->m, j, w, false) + a1 * g;
		vf v = b2 * ldm(u->v, j, w, false) + a2 * (g * g);
		stm(u->m, j, m, w, false);
		stm(u->v, j, v, w, false);
		stm(u->p, j, p - decay * p - lr * (m * r1) / (v_sqrt(v * r2) + eps), w, false);
	}
}

int CPU_SYM(cpu_adamw)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct update u = { .p = cpu_ptr(a[0]),
			    .m = cpu_ptr(a[1]),
			    .v = cpu_ptr(a[2]),
			    .g = cpu_ptr(a[3]),
			    .n = a[4].i,
			    .lr = a[5].f,
			    .b1 = a[6].f,
			    .b2 = a[7].f,
			    .eps = a[8].f,
			    .wd = a[9].f,
			    .bc1 = a[10].f,
			    .bc2 = a[11].f,
			    .gscale = a[12].f };
	cpu_par(c, chunks(u.n), adamw_chunk, &u);
	return 0;
}

static void sgd_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct update *u = ctx;
	const int64_t i0 = i * CHUNK, i1 = i0 + CHUNK < u->n ? i0 + CHUNK : u->n;
	const vf lr = v_set(u->lr), mu = v_set(u->b1), wd = v_set(u->wd), gs = v_set(u->gscale);
	for (int64_t j = i0; j < i1; j += VW) {
		int64_t w = i1 - j;
		vf p = ldm(u->p, j, w, false);
		vf g = ldm(u->g, j, w, false) * gs + wd * p;
		if (u->m) {
			g += mu * ldm(u->m, j, w, false);
			stm(u->m, j, g, w, false);
		}
		stm(u->p, j, p - lr * g, w, false);
	}
}

int CPU_SYM(cpu_sgd)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct update u = { .p = cpu_ptr(a[0]),
			    .m = cpu_ptr(a[1]),
			    .g = cpu_ptr(a[2]),
			    .n = a[3].i,
			    .lr = a[4].f,
			    .b1 = a[5].f,
			    .wd = a[6].f,
			    .gscale = a[7].f };
	cpu_par(c, chunks(u.n), sgd_chunk, &u);
	return 0;
}

/* ---- AdamW in 8 bits ---- */

#define BLOCK 256 /* divides CHUNK */

/* Half-way between neighbours of a table. */
static void borders_of(const float table[256], float border[255])
{
	for (int k = 0; k < 255; k++)
		border[k] = 0.5f * (table[k] + table[k + 1]);
}

/* code[j]: how many borders are below x[j]. */
static void nearest8(const float border[255], const float x[BLOCK], int32_t code[BLOCK])
{
	for (int j = 0; j < BLOCK; j++)
		code[j] = 0;
	for (int step = 128; step; step /= 2)
		for (int j = 0; j < BLOCK; j++)
			code[j] += x[j] > border[code[j] + step - 1] ? step : 0;
}

static void adamw8_block(const struct update *u, int64_t b, const float ms[255],
			 const float us[255])
{
	const int64_t i0 = b * BLOCK, n = u->n - i0 < BLOCK ? u->n - i0 : BLOCK;
	const float a1 = 1.0f - u->b1, a2 = 1.0f - u->b2, decay = u->lr * u->wd;
	float m[BLOCK], v[BLOCK], mtop = 0, vtop = 0;
	int32_t mc[BLOCK], vc[BLOCK];
	for (int64_t j = 0; j < n; j++) {
		float g = u->g[i0 + j] * u->gscale;
		m[j] = u->b1 * (dynamic8_signed[u->mq[i0 + j]] * u->m[b]) + a1 * g;
		v[j] = u->b2 * (dynamic8_unsigned[u->vq[i0 + j]] * u->v[b]) + a2 * (g * g);
	}
	for (int64_t j = n; j < BLOCK; j++)
		m[j] = v[j] = 0;
	for (int64_t j = 0; j < n; j++) {
		float *p = &u->p[i0 + j];
		*p = *p - decay * *p - u->lr * (m[j] / u->bc1) / (sqrtf(v[j] / u->bc2) + u->eps);
	}
	for (int j = 0; j < BLOCK; j++) {
		mtop = fabsf(m[j]) > mtop ? fabsf(m[j]) : mtop;
		vtop = v[j] > vtop ? v[j] : vtop;
	}
	u->m[b] = mtop;
	u->v[b] = vtop;
	for (int j = 0; j < BLOCK; j++) {
		m[j] = mtop > 0 ? m[j] / mtop : 0;
		v[j] = vtop > 0 ? v[j] / vtop : 0;
	}
	nearest8(ms, m, mc);
	nearest8(us, v, vc);
	for (int64_t j = 0; j < n; j++) {
		u->mq[i0 + j] = (uint8_t)mc[j];
		u->vq[i0 + j] = (uint8_t)vc[j];
	}
}

static void adamw8_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct update *u = ctx;
	float ms[255], us[255];
	borders_of(dynamic8_signed, ms);
	borders_of(dynamic8_unsigned, us);
	for (int64_t b = i * (CHUNK / BLOCK); b < (i + 1) * (CHUNK / BLOCK) && b * BLOCK < u->n;
	     b++)
		adamw8_block(u, b, ms, us);
}

int CPU_SYM(cpu_adamw8)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct update u = { .p = cpu_ptr(a[0]),
			    .mq = cpu_ptr(a[1]),
			    .vq = cpu_ptr(a[2]),
			    .m = cpu_ptr(a[3]),
			    .v = cpu_ptr(a[4]),
			    .g = cpu_ptr(a[5]),
			    .n = a[6].i,
			    .lr = a[7].f,
			    .b1 = a[8].f,
			    .b2 = a[9].f,
			    .eps = a[10].f,
			    .wd = a[11].f,
			    .bc1 = a[12].f,
			    .bc2 = a[13].f,
			    .gscale = a[14].f };
	cpu_par(c, chunks(u.n), adamw8_chunk, &u);
	return 0;
}

/* ---- Lion ---- */

static void lion_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct update *u = ctx;
	const int64_t i0 = i * CHUNK, i1 = i0 + CHUNK < u->n ? i0 + CHUNK : u->n;
	const vf b1 = v_set(u->b1), b2 = v_set(u->b2), a1 = v_set(1.0f - u->b1),
		 a2 = v_set(1.0f - u->b2), gs = v_set(u->gscale), lr = v_set(u->lr),
		 wd = v_set(u->wd), one = v_set(1), zero = v_set(0);
	for (int64_t j = i0; j < i1; j += VW) {
		int64_t w = i1 - j;
		vf g = ldm(u->g, j, w, false) * gs, p = ldm(u->p, j, w, false),
		   m = ldm(u->m, j, w, false), c = b1 * m + a1 * g;
		vf sign = v_keep(c > zero, one) - v_keep(c < zero, one);
		stm(u->p, j, p - lr * (sign + wd * p), w, false);
		stm(u->m, j, b2 * m + a2 * g, w, false);
	}
}

int CPU_SYM(cpu_lion)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct update u = { .p = cpu_ptr(a[0]),
			    .m = cpu_ptr(a[1]),
			    .g = cpu_ptr(a[2]),
			    .n = a[3].i,
			    .lr = a[4].f,
			    .b1 = a[5].f,
			    .b2 = a[6].f,
			    .wd = a[7].f,
			    .gscale = a[8].f };
	cpu_par(c, chunks(u.n), lion_chunk, &u);
	return 0;
}

/* ---- Adafactor ---- */

struct factor {
	float *out, *g;
	const float *row, *col;
	int64_t rows, cols;
	float b2, eps, gscale, mean;
};

static void factor_rows_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct factor *f = ctx;
	const vf gs = v_set(f->gscale);
	vf s = { 0 };
	for (int64_t j = 0; j < f->cols; j += VW) {
		vf v = ldm(f->g, i * f->cols + j, f->cols - j, false) * gs;
		s += v * v;
	}
	const float mean = v_sum(s) / (float)f->cols + f->eps;
	f->out[i] = f->b2 * f->out[i] + (1.0f - f->b2) * mean;
}

static void factor_cols_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct factor *f = ctx;
	const int64_t j = i * VW, w = f->cols - j;
	const vf gs = v_set(f->gscale);
	vf s = { 0 };
	for (int64_t r = 0; r < f->rows; r++) {
		vf v = ldm(f->g, r * f->cols + j, w, false) * gs;
		s += v * v;
	}
	s = s / v_set((float)f->rows) + v_set(f->eps);
	stm(f->out, j, v_set(f->b2) * ldm(f->out, j, w, false) + v_set(1.0f - f->b2) * s, w, false);
}

static struct factor factor_of(const union dev_arg *a)
{
	return (struct factor){ .out = cpu_ptr(a[0]),
				.g = cpu_ptr(a[1]),
				.rows = a[2].i,
				.cols = a[3].i,
				.b2 = a[4].f,
				.eps = a[5].f,
				.gscale = a[6].f };
}

int CPU_SYM(cpu_factor_rows)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct factor f = factor_of(a);
	cpu_par(c, f.rows, factor_rows_chunk, &f);
	return 0;
}

int CPU_SYM(cpu_factor_cols)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct factor f = factor_of(a);
	cpu_par(c, (f.cols + VW - 1) / VW, factor_cols_chunk, &f);
	return 0;
}

static void factor_scale_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct factor *f = ctx;
	const vf by = v_set(f->gscale / sqrtf(f->row[i] / f->mean));
	for (int64_t j = 0; j < f->cols; j += VW) {
		const int64_t at = i * f->cols + j, w = f->cols - j;
		vf v = ldm(f->g, at, w, false) * by;
		if (f->col)
			v /= v_sqrt(ldm(f->col, j, w, false));
		stm(f->g, at, v, w, false);
	}
}

int CPU_SYM(cpu_factor_scale)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct factor f = { .g = cpu_ptr(a[0]),
			    .row = cpu_ptr(a[1]),
			    .col = cpu_ptr(a[2]),
			    .rows = a[3].i,
			    .cols = a[4].i,
			    .mean = a[5].f,
			    .gscale = a[6].f };
	cpu_par(c, f.rows, factor_scale_chunk, &f);
	return 0;
}
