/* tile.h - small matrix products on packed tiles: the engine of attention.
 *
 * A product is C[rows][lanes] (=, +=) sum over p of A(r,p) * B[p][lane]. An element of A or B is four bytes: a float32, or (`dp`) a pair
 * of bfloat16 that are neighbours in the summed dimension, multiplied and added in one instruction. A is read one element at a time
 * (address a + r*ars + p*aps), B in vectors (b + p*ldb), so one kernel serves every layout attention needs:
 *     rows      [n][dp]: a row of T copied as it is; A with p along the row
 *     pairs     [n/2][dp][2] (dp) or the same as rows: rows two by two, B with lanes along the row, A with p across the rows
 *     turned    [dp/2][LANES][2] (dp) or [dp][LANES]: transposed, B with a lane per row
 * Widths are padded with zeros to a multiple of 16 (`dpad`), numbers of rows to LANES.
 *
 * C is float32. mm() rounds nothing on the way; the order of a sum is that of p. */
#ifndef HS_DEV_CPU_TILE_H
#define HS_DEV_CPU_TILE_H

#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#define LANES 64 /* queries and keys of a tile */

#if defined(__AVX512BF16__)
#define HAVE_DP true
#else
#define HAVE_DP false
#endif

enum mm_mode { MM_SET, MM_ADD, MM_SCALE }; /* C = , C += , C = C*alpha[lane] + */

struct mm {
	float *c;
	int64_t ldc;         /* floats */
	int64_t rows, lanes; /* multiples of 4 and 16 */
	const void *a;
	int64_t ars, aps; /* bytes */
	const void *b;
	int64_t ldb; /* bytes */
	int64_t np;
	const float *alpha;
};

void CPU_SYM(cpu_mm)(const struct mm *m, enum mm_mode mode, bool dp);

/* Pack rows [0, n) of src (T, `lds` elements apart, d wide); rows n .. rows-1 are zero. */
void CPU_SYM(cpu_pack_rows)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows, int64_t d, bool bf, bool dp);
void CPU_SYM(cpu_pack_pairs)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows, int64_t d, bool bf, bool dp);
void CPU_SYM(cpu_pack_turned)(void *dst, const void *src, int64_t lds, int64_t n, int64_t d, bool bf, bool dp);
/* dst (T, n rows of d) = c[d][LANES] transposed, lane q times mul[q] */
void CPU_SYM(cpu_unturn)(void *dst, int64_t ldd, const float *c, const float *mul, int64_t n, int64_t d, bool bf);

INLINE int64_t dpad(int64_t d) { return (d + 15) / 16 * 16; }

/* 2^t; 0 below -126, NaN stays NaN, t must be below 128. Minimax polynomials of 2^r on [-1/2, 1/2], relative error 2e-9, or 3e-6
 * (`rough`) where the result is rounded to bfloat16. */
INLINE vf v_exp2(vf t, const bool rough)
{
	vf p, n, r;
#if defined(__AVX512F__)
	const __mmask16 there = _mm512_cmp_ps_mask((__m512)t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
	n = (vf)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
	const vf magic = v_set(0x1.8p23f);
	const vi low = t < v_set(-126.0f);
	t = v_sel(low, v_set(-126.0f), t);
	const vf shifted = t + magic;
	n = shifted - magic;
#endif
	r = t - n;
	if (rough) {
		p = v_set(0.00957010191f) * r + v_set(0.0559178603f);
		p = p * r + v_set(0.240247448f);
		p = p * r + v_set(0.693121815f);
		p = p * r + v_set(0.999999261f);
	} else {
		p = v_set(0.00015345812f) * r + v_set(0.00133999312f);
		p = p * r + v_set(0.00961848896f);
		p = p * r + v_set(0.0555032878f);
		p = p * r + v_set(0.240226469f);
		p = p * r + v_set(0.693147206f);
		p = p * r + v_set(1.0f);
	}
#if defined(__AVX512F__)
	return (vf)_mm512_maskz_scalef_ps(there, (__m512)p, (__m512)n);
#else
	p = p * (vf)(((vi)shifted - (vi)magic + 127) << 23);
	return (vf)(~low & (vi)p);
#endif
}

#endif
