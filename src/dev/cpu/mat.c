/* SPDX-License-Identifier: Apache-2.0 */
/* mat.c - helpers of the matrix product: a few rows times a big weight (generation), and
 * transposing into scratch. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#define ROWS 4     /* rows of B read at once */
#define AHEAD 2048 /* bytes that are prefetched */

struct gemv {
	const struct dev_gemm *g;
	const float *x; /* (m, kp) */
	int64_t kp, per;
};

/* C[0..m, j..j+nr) */
INLINE void dots(const struct gemv *v, int64_t j, const int nr, const int m, const bool bf)
{
	const struct dev_gemm *g = v->g;
	const char *b = (const char *)g->b.buf->host + g->b.off;
	const size_t size = bf ? 2 : 4;
	const void *row[ROWS];
	vf s[ROWS][CPU_GEMV_ROWS] = { { { 0 } } };
	for (int r = 0; r < nr; r++)
		row[r] = b + (size_t)((j + r) * g->ldb) * size;
	int64_t i = 0;
	for (; i + VW <= g->k; i += VW)
		for (int r = 0; r < nr; r++) {
			vf w = ld(row[r], i, bf);
			__builtin_prefetch((const char *)row[r] + (size_t)i * size + AHEAD);
			for (int q = 0; q < m; q++)
				s[r][q] += w * ld(v->x, q * v->kp + i, false);
		}
	if (i < g->k)
		for (int r = 0; r < nr; r++) {
			vf w = ldm(row[r], i, g->k - i, bf);
			for (int q = 0; q < m; q++)
				s[r][q] += w * ld(v->x, q * v->kp + i, false);
		}
	const bool cbf = g->c_dtype == DT_BF16;
	char *c = (char *)g->c.buf->host + g->c.off;
	for (int r = 0; r < nr; r++)
		for (int q = 0; q < m; q++) {
			int64_t at = q * g->ldc + j + r;
			float f = g->alpha * v_sum(s[r][q]);
			if (g->beta != 0)
				f += ld1(c, at, cbf);
			st1(c, at, f, cbf);
		}
}

INLINE void dots_m(const struct gemv *v, int64_t j, const int nr, const bool bf)
{
	switch (v->g->m) {
	case 1:
		dots(v, j, nr, 1, bf);
		break;
	case 2:
		dots(v, j, nr, 2, bf);
		break;
	case 3:
		dots(v, j, nr, 3, bf);
		break;
	default:
		dots(v, j, nr, 4, bf);
		break;
	}
}

static void gemv_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct gemv *v = ctx;
	const bool bf = v->g->ab_dtype == DT_BF16;
	int64_t j = i * v->per, end = j + v->per < v->g->n ? j + v->per : v->g->n;
	for (; j + ROWS <= end; j += ROWS)
		if (bf)
			dots_m(v, j, ROWS, true);
		else
			dots_m(v, j, ROWS, false);
	for (; j < end; j++)
		if (bf)
			dots_m(v, j, 1, true);
		else
			dots_m(v, j, 1, false);
}

bool CPU_SYM(cpu_gemv)(struct cpu *c, const struct dev_gemm *g)
{
	const bool bf = g->ab_dtype == DT_BF16;
	struct gemv v = { .g = g, .kp = (g->k + VW - 1) / VW * VW };
	float *x = cpu_scratch(c, (size_t)(g->m * v.kp) * sizeof(float));
	if (!x)
		return false;
	const char *a = (const char *)g->a.buf->host + g->a.off;
	for (int64_t q = 0; q < g->m; q++)
		for (int64_t i = 0; i < g->k; i += VW)
			st(x, q * v.kp + i,
			   ldm(a + (size_t)(q * g->lda) * (bf ? 2 : 4), i, g->k - i, bf), false);
	v.x = x;
	v.per = 65536 / (g->k + 1) / ROWS * ROWS + ROWS;
	cpu_par(c, (g->n + v.per - 1) / v.per, gemv_chunk, &v);
	return true;
}

#define TILE 32

struct transpose {
	char *dst;
	const char *src;
	int64_t rows, cols, lds, ldd;
};

#define TRANSPOSE_CHUNK(name, type)                                                                \
	static void name(void *ctx, int64_t i, int thread)                                         \
	{                                                                                          \
		(void)thread;                                                                      \
		const struct transpose *t = ctx;                                                   \
		const int64_t r0 = i * TILE, r1 = r0 + TILE < t->rows ? r0 + TILE : t->rows;       \
		const type *src = (const type *)t->src;                                            \
		type *dst = (type *)t->dst;                                                        \
		for (int64_t c0 = 0; c0 < t->cols; c0 += TILE) {                                   \
			if (r1 - r0 == TILE && c0 + TILE <= t->cols) {                             \
				type tile[TILE][TILE];                                             \
				for (int r = 0; r < TILE; r++)                                     \
					memcpy(tile[r], src + (r0 + r) * t->lds + c0,              \
					       sizeof tile[r]);                                    \
				for (int k = 0; k < TILE; k++)                                     \
					for (int r = 0; r < TILE; r++)                             \
						dst[(c0 + k) * t->ldd + r0 + r] = tile[r][k];      \
				continue;                                                          \
			}                                                                          \
			for (int64_t k = c0; k < t->cols && k < c0 + TILE; k++)                    \
				for (int64_t r = r0; r < r1; r++)                                  \
					dst[k * t->ldd + r] = src[r * t->lds + k];                 \
		}                                                                                  \
	}
TRANSPOSE_CHUNK(transpose2, uint16_t)
TRANSPOSE_CHUNK(transpose4, uint32_t)

void CPU_SYM(cpu_transpose)(struct cpu *c, void *dst, const void *src, int64_t rows, int64_t cols,
			    int64_t lds, int64_t ldd, int size)
{
	struct transpose t = { dst, src, rows, cols, lds, ldd };
	cpu_par(c, (rows + TILE - 1) / TILE, size == 2 ? transpose2 : transpose4, &t);
}
