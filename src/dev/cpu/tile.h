/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - small matrix products on packed tiles: the engine of attention.
 *
 * A product is C[rows][lanes] (=, +=) sum over p of A(r,p) * B[p][lane]. An element of A or B is
 * four bytes: a float32, or (`dp`) a pair of bfloat16 that are neighbours in the summed dimension,
 * multiplied and added in one instruction. A is read one element at a time (address a + r*ars +
 * p*aps), B in vectors (b + p*ldb), so one kernel serves every layout attention needs:
 *     rows      [n][dp]: a row of T copied as it is; A with p along the row
 *     pairs     [n/2][dp][2] (dp) or the same as rows: rows two by two, B with lanes along the row,
 *               A with p across the rows
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
	int64_t rows, lanes; /* multiples of 16 */
	const void *a;
	int64_t ars, aps; /* bytes */
	const void *b;
	int64_t ldb; /* bytes */
	int64_t np;
	const float *alpha;
};

void CPU_SYM(cpu_mm)(const struct mm *m, enum mm_mode mode, bool dp);

/* Pack rows [0, n) of src (T, `lds` elements apart, d wide); rows n .. rows-1 are zero. */
void CPU_SYM(cpu_pack_rows)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows,
			    int64_t d, bool bf, bool dp);
void CPU_SYM(cpu_pack_pairs)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows,
			     int64_t d, bool bf, bool dp);
void CPU_SYM(cpu_pack_turned)(void *dst, const void *src, int64_t lds, int64_t n, int64_t d,
			      bool bf, bool dp);
/* dst (T, n rows of d) = c[d][LANES] transposed, lane q times mul[q] */
void CPU_SYM(cpu_unturn)(void *dst, int64_t ldd, const float *c, const float *mul, int64_t n,
			 int64_t d, bool bf);

INLINE int64_t dpad(int64_t d) { return (d + 15) / 16 * 16; }

#endif
