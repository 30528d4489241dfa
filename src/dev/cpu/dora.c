/* SPDX-License-Identifier: Apache-2.0 */
/* dora.c - kernels of DoRA: norms of rows, columns scaled, and the gradient of the scale. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

#include <math.h>

enum { COLS = 64, BLOCK = 128 }; /* columns of a block, rows of a partial sum */

struct dora {
	void *y;
	const void *x, *z;
	const float *m, *norm;
	float *f;
	int64_t n, c, per;
	bool bf, acc;
};

static void norm_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct dora *d = ctx;
	const int64_t end = (i + 1) * d->per < d->n ? (i + 1) * d->per : d->n;
	for (int64_t n = i * d->per; n < end; n++) {
		vf s = { 0 };
		for (int64_t j = 0; j < d->c; j += VW) {
			const vf v = ldm(d->x, n * d->c + j, d->c - j, false);
			s += v * v;
		}
		d->f[n] = sqrtf(v_sum(s));
	}
}

INLINE void scale_rows(const struct dora *d, int64_t i, const bool bf)
{
	const int64_t end = (i + 1) * d->per < d->n ? (i + 1) * d->per : d->n;
	for (int64_t n = i * d->per; n < end; n++)
		for (int64_t j = 0; j < d->c; j += VW) {
			const int64_t at = n * d->c + j, some = d->c - j;
			vf v = ldm(d->x, at, some, bf) * ldm(d->m, j, some, false);
			for (int64_t k = 0; k < VW && k < some; k++)
				v[k] /= d->norm[j + k];
			if (d->acc)
				v += ldm(d->y, at, some, bf);
			stm(d->y, at, v, some, bf);
		}
}

static void scale_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct dora *d = ctx;
	if (d->bf)
		scale_rows(d, i, true);
	else
		scale_rows(d, i, false);
}

/* A block of columns is summed by one thread, in the order of the rows. */
INLINE void dot_block(const struct dora *d, int64_t i, const bool bf)
{
	const int64_t c0 = i * COLS, c1 = c0 + COLS < d->c ? c0 + COLS : d->c;
	vf total[COLS / VW] = { { 0 } };
	for (int64_t b = 0; b < d->n; b += BLOCK) {
		const int64_t end = b + BLOCK < d->n ? b + BLOCK : d->n;
		vf part[COLS / VW] = { { 0 } };
		for (int64_t n = b; n < end; n++)
			for (int64_t j = c0; j < c1; j += VW)
				part[(j - c0) / VW] += ldm(d->x, n * d->c + j, c1 - j, bf) *
						       ldm(d->z, n * d->c + j, c1 - j, bf);
		for (int k = 0; k < COLS / VW; k++)
			total[k] += part[k];
	}
	for (int64_t j = c0; j < c1; j++)
		d->f[j] += total[(j - c0) / VW][(j - c0) % VW] / d->norm[j];
}

static void dot_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct dora *d = ctx;
	if (d->bf)
		dot_block(d, i, true);
	else
		dot_block(d, i, false);
}

static int64_t rows_per(int64_t c) { return c > 16384 ? 1 : 16384 / (c ? c : 1); }

int CPU_SYM(cpu_row_norms)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)t;
	(void)e;
	struct dora d = { .f = cpu_ptr(a[0]),
			  .x = cpu_ptr(a[1]),
			  .n = a[2].i,
			  .c = a[3].i,
			  .per = rows_per(a[3].i) };
	cpu_par(c, (d.n + d.per - 1) / d.per, norm_chunk, &d);
	return 0;
}

int CPU_SYM(cpu_scale_columns)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct dora d = { .y = cpu_ptr(a[0]),
			  .x = cpu_ptr(a[1]),
			  .m = cpu_ptr(a[2]),
			  .norm = cpu_ptr(a[3]),
			  .n = a[4].i,
			  .c = a[5].i,
			  .acc = a[6].i != 0,
			  .per = rows_per(a[5].i),
			  .bf = t == DT_BF16 };
	cpu_par(c, (d.n + d.per - 1) / d.per, scale_chunk, &d);
	return 0;
}

int CPU_SYM(cpu_dot_columns)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	(void)e;
	struct dora d = { .f = cpu_ptr(a[0]),
			  .x = cpu_ptr(a[1]),
			  .z = cpu_ptr(a[2]),
			  .norm = cpu_ptr(a[3]),
			  .n = a[4].i,
			  .c = a[5].i,
			  .bf = t == DT_BF16 };
	cpu_par(c, (d.c + COLS - 1) / COLS, dot_chunk, &d);
	return 0;
}
