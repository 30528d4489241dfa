/* SPDX-License-Identifier: Apache-2.0 */
/* tile.c - see tile.h. */
#include "dev/cpu/tile.h"

/* Vectors of a panel. Rows times vectors of a block are the sums that stay in registers: 16 of 32,
 * or 8 of 16; narrow panels take more rows. */
#if VW == 16
#define WIDEST 4
#define SUMS 16
#else
#define WIDEST 2
#define SUMS 8
#endif
#define ROWS_OF(nv) ((nv) == 3 ? 4 : SUMS / (nv))

INLINE vf multiply_add(vf c, const char *a, vf b, const bool dp)
{
#if defined(__AVX512BF16__)
	if (dp) {
		int32_t w;
		memcpy(&w, a, 4);
		return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32(w), (__m512bh)b);
	}
#endif
	(void)dp;
	float f;
	memcpy(&f, a, 4);
	return c + v_set(f) * b;
}

/* ROWS_OF(nv) rows of C, nv vectors wide, from lane `lane` on */
INLINE void block(const struct mm *m, int64_t row, int64_t lane, const int nv,
		  const enum mm_mode mode, const bool dp)
{
	const int nr = ROWS_OF(nv);
	vf s[SUMS][WIDEST];
	float *c = m->c + row * m->ldc + lane;
	const char *a = (const char *)m->a + row * m->ars, *b = (const char *)m->b + lane * 4;
	const int64_t ars = m->ars, aps = m->aps, ldb = m->ldb;
	for (int r = 0; r < nr; r++)
		for (int v = 0; v < nv; v++) {
			if (mode == MM_SET)
				s[r][v] = v_set(0);
			else
				s[r][v] = ld(c + r * m->ldc, v * VW, false);
			if (mode == MM_SCALE)
				s[r][v] *= ld(m->alpha, lane + v * VW, false);
		}
	for (int64_t p = 0; p < m->np; p++) {
		vf w[WIDEST];
		for (int v = 0; v < nv; v++)
			w[v] = ld(b, v * VW, false);
		for (int r = 0; r < nr; r++)
			for (int v = 0; v < nv; v++)
				s[r][v] = multiply_add(s[r][v], a + r * ars, w[v], dp);
		a += aps;
		b += ldb;
	}
	for (int r = 0; r < nr; r++)
		for (int v = 0; v < nv; v++)
			st(c + r * m->ldc, v * VW, s[r][v], false);
}

INLINE void panel(const struct mm *m, int64_t lane, const int nv, enum mm_mode mode, const bool dp)
{
	if (mode == MM_SET)
		for (int64_t r = 0; r < m->rows; r += ROWS_OF(nv))
			block(m, r, lane, nv, MM_SET, dp);
	else if (mode == MM_ADD)
		for (int64_t r = 0; r < m->rows; r += ROWS_OF(nv))
			block(m, r, lane, nv, MM_ADD, dp);
	else
		for (int64_t r = 0; r < m->rows; r += ROWS_OF(nv))
			block(m, r, lane, nv, MM_SCALE, dp);
}

INLINE void panels(const struct mm *m, enum mm_mode mode, const bool dp)
{
	int64_t lane = 0;
	for (; lane + WIDEST * VW <= m->lanes; lane += WIDEST * VW)
		panel(m, lane, WIDEST, mode, dp);
#if VW == 16
	switch ((m->lanes - lane) / VW) {
	case 3:
		panel(m, lane, 3, mode, dp);
		break;
	case 2:
		panel(m, lane, 2, mode, dp);
		break;
	case 1:
		panel(m, lane, 1, mode, dp);
		break;
	default:
		break;
	}
#endif
}

void CPU_SYM(cpu_mm)(const struct mm *m, enum mm_mode mode, bool dp)
{
	if (HAVE_DP && dp)
		panels(m, mode, true);
	else
		panels(m, mode, false);
}

#if VW == 16
/* Element i of a row whose first n elements are there, as an element of a packed tile: 16 of
 * them. */
INLINE __m512i four_bytes(const void *row, int64_t i, int64_t n, const bool bf, const bool dp)
{
	if (dp) {
		int64_t left = n - 2 * i;
		__mmask32 k = left >= 32 ? ~(__mmask32)0
			      : left > 0 ? ((__mmask32)1 << left) - 1
					 : 0;
		return _mm512_maskz_loadu_epi16(k, (const uint16_t *)row + 2 * i);
	}
	int64_t left = n - i;
	__mmask16 k = left >= 16 ? (__mmask16)0xffff : left > 0 ? (__mmask16)((1 << left) - 1) : 0;
	if (bf)
		return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
						 k, (const uint16_t *)row + i)),
					 16);
	return _mm512_maskz_loadu_epi32(k, (const uint32_t *)row + i);
}

INLINE void transpose16(__m512i r[16])
{
	__m512i t[16];
	for (int i = 0; i < 8; i++) {
		t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
		r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
		r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
		r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
	}
	for (int i = 0; i < 4; i++) {
		t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
		t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
		t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
		t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
	}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
		r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
		r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
		r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
	}
}
#endif

INLINE void rows_of(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows, int64_t d,
		    const bool bf, const bool dp)
{
	const int64_t w = dpad(d);
	for (int64_t r = 0; r < n; r++) {
		const char *s = (const char *)src + r * lds * (bf ? 2 : 4);
		char *t = (char *)dst + r * w * (dp ? 2 : 4);
		if (dp || !bf)
			memcpy(t, s, (size_t)d * (dp ? 2 : 4));
		else
			for (int64_t i = 0; i < d; i += VW)
				stm(t, i, ldm(s, i, d - i, true), d - i, false);
		if (w > d)
			memset(t + d * (dp ? 2 : 4), 0, (size_t)(w - d) * (dp ? 2 : 4));
	}
	if (rows > n)
		memset((char *)dst + n * w * (dp ? 2 : 4), 0,
		       (size_t)((rows - n) * w) * (dp ? 2 : 4));
}

void CPU_SYM(cpu_pack_rows)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows,
			    int64_t d, bool bf, bool dp)
{
	if (dp)
		rows_of(dst, src, lds, n, rows, d, true, true);
	else if (bf)
		rows_of(dst, src, lds, n, rows, d, true, false);
	else
		rows_of(dst, src, lds, n, rows, d, false, false);
}

void CPU_SYM(cpu_pack_pairs)(void *dst, const void *src, int64_t lds, int64_t n, int64_t rows,
			     int64_t d, bool bf, bool dp)
{
	if (!dp) {
		CPU_SYM(cpu_pack_rows)(dst, src, lds, n, rows, d, bf, dp);
		return;
	}
#if defined(__AVX512BF16__)
	const int64_t w = dpad(d);
	const uint16_t *s = src;
	for (int64_t r = 0; r < rows; r += 2) {
		uint32_t *t = (uint32_t *)dst + r / 2 * w;
		for (int64_t i = 0; i < w; i += 16) {
			int64_t left = d - i;
			__mmask16 k = left >= 16 ? (__mmask16)0xffff : (__mmask16)((1 << left) - 1),
				  k0 = r < n ? k : 0, k1 = r + 1 < n ? k : 0;
			__m512i lo = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(k0, s + r * lds + i));
			__m512i hi = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(k1, s + (r + 1) * lds + i));
			_mm512_storeu_si512(t + i, _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
		}
	}
#endif
}

INLINE void turned(void *dst, const void *src, int64_t lds, int64_t n, int64_t d, const bool bf,
		   const bool dp)
{
	const int64_t np = dpad(d) / (dp ? 2 : 1);
	uint32_t *t = dst;
#if VW == 16
	for (int64_t q = 0; q < LANES; q += 16)
		for (int64_t p = 0; p < np; p += 16) {
			__m512i r[16];
			for (int k = 0; k < 16; k++)
				r[k] = q + k < n ? four_bytes((const char *)src +
								      (q + k) * lds * (bf ? 2 : 4),
							      p, d, bf, dp)
						 : _mm512_setzero_si512();
			transpose16(r);
			for (int k = 0; k < 16 && p + k < np; k++)
				_mm512_storeu_si512(t + (p + k) * LANES + q, r[k]);
		}
#else
	for (int64_t q = 0; q < LANES; q++)
		for (int64_t p = 0; p < np; p++) {
			float f = q < n && p < d ? ld1(src, q * lds + p, bf) : 0;
			memcpy(t + p * LANES + q, &f, 4);
		}
#endif
}

void CPU_SYM(cpu_pack_turned)(void *dst, const void *src, int64_t lds, int64_t n, int64_t d,
			      bool bf, bool dp)
{
	if (HAVE_DP && dp)
		turned(dst, src, lds, n, d, true, true);
	else if (bf)
		turned(dst, src, lds, n, d, true, false);
	else
		turned(dst, src, lds, n, d, false, false);
}

#if defined(__AVX512BF16__)
/* 32 columns of 16 rows, as pairs of neighbours: half as many numbers to turn. */
INLINE void unturned_pairs(uint16_t *dst, int64_t ldd, const float *c, vf mul, int64_t n)
{
	__m512i r[16];
	for (int k = 0; k < 16; k++)
		r[k] = v_pairs(ld(c, 2 * k * LANES, false) * mul,
			       ld(c, (2 * k + 1) * LANES, false) * mul);
	transpose16(r);
	for (int k = 0; k < 16 && k < n; k++)
		_mm512_storeu_si512(dst + k * ldd, r[k]);
}
#endif

INLINE void unturned(void *dst, int64_t ldd, const float *c, const float *mul, int64_t n, int64_t d,
		     const bool bf)
{
#if defined(__AVX512BF16__)
	if (bf && d % 32 == 0) {
		for (int64_t q = 0; q < n; q += 16)
			for (int64_t x = 0; x < d; x += 32)
				unturned_pairs((uint16_t *)dst + q * ldd + x, ldd,
					       c + x * LANES + q, ld(mul, q, false), n - q);
		return;
	}
#endif
#if VW == 16
	for (int64_t q = 0; q < n; q += 16)
		for (int64_t x = 0; x < d; x += 16) {
			__m512i r[16];
			for (int k = 0; k < 16; k++)
				r[k] = (__m512i)(ld(c, (x + k) * LANES + q, false) *
						 ld(mul, q, false));
			transpose16(r);
			for (int k = 0; k < 16 && q + k < n; k++)
				stm(dst, (q + k) * ldd + x, (vf)r[k], d - x, bf);
		}
#else
	for (int64_t q = 0; q < n; q++)
		for (int64_t x = 0; x < d; x++)
			st1(dst, q * ldd + x, c[x * LANES + q] * mul[q], bf);
#endif
}

void CPU_SYM(cpu_unturn)(void *dst, int64_t ldd, const float *c, const float *mul, int64_t n,
			 int64_t d, bool bf)
{
	if (bf)
		unturned(dst, ldd, c, mul, n, d, true);
	else
		unturned(dst, ldd, c, mul, n, d, false);
}
