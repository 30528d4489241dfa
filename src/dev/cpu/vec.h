/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - short vectors of float32 as wide as the instruction set this is compiled for (VW lanes),
 * loads and stores that convert from and to bfloat16, and exp.
 *
 * The `bf` flags are constants at every call, so that each kernel is compiled once per dtype. */
#ifndef HS_DEV_CPU_VEC_H
#define HS_DEV_CPU_VEC_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VW 16
#elif defined(__AVX2__)
#define VW 8
#else
#define VW 4
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));
typedef uint16_t vh __attribute__((vector_size(VW * 2)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf v_set(float f) { return f - (vf){ 0 }; }

/* m ? a : b, lane by lane; m is all ones or all zeros in a lane (the result of a comparison). */
INLINE vf v_sel(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }

/* a where m is set, else 0 */
INLINE vf v_keep(vi m, vf a) { return (vf)(m & (vi)a); }

/* The larger; b where a is NaN. */
INLINE vf v_max(vf a, vf b)
{
#if defined(__AVX512F__)
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return v_sel(a > b, a, b);
#endif
}

INLINE vf v_min(vf a, vf b)
{
#if defined(__AVX512F__)
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
	return v_sel(a < b, a, b);
#endif
}

INLINE vf v_sqrt(vf a)
{
#if defined(__AVX512F__)
	return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
	return (vf)_mm256_sqrt_ps((__m256)a);
#else
	for (int i = 0; i < VW; i++)
		a[i] = __builtin_sqrtf(a[i]);
	return a;
#endif
}

INLINE float v_sum(vf a)
{
#if defined(__AVX512F__)
	return _mm512_reduce_add_ps((__m512)a);
#else
	float s[VW];
	memcpy(s, &a, sizeof a);
	for (int w = VW / 2; w; w /= 2)
		for (int i = 0; i < w; i++)
			s[i] += s[i + w];
	return s[0];
#endif
}

INLINE float v_hmax(vf a)
{
	float m = a[0];
	for (int i = 1; i < VW; i++)
		m = a[i] > m ? a[i] : m;
	return m;
}

/* bfloat16 bits to float32 and back, rounded to nearest even; NaN stays NaN. */
INLINE vf v_from_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }

INLINE vh v_to_bf16(vf f)
{
#if defined(__AVX512BF16__)
	return (vh)_mm512_cvtneps_pbh((__m512)f);
#else
	vu u = (vu)f;
	vu r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
	vu quiet = (u >> 16) | 0x40;
	vu nan = (vu)(f != f);
	return __builtin_convertvector((nan & quiet) | (~nan & r), vh);
#endif
}

#if defined(__AVX512BF16__)
/* Two vectors as pairs of bfloat16: a in the lower halves, b in the upper. */
INLINE __m512i v_pairs(vf a, vf b)
{
	/* halves of one register, then between each other */
	static const uint16_t order[32] = { 0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
					    21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
					    11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
	return _mm512_permutexvar_epi16(_mm512_loadu_si512(order),
					(__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
}
#endif

/* The same, stored. Without instructions for it ties round away from zero, and a NaN with all bits
 * set would wrap. */
INLINE void v_store_pairs(uint32_t *dst, vf a, vf b)
{
#if defined(__AVX512BF16__)
	_mm512_storeu_si512(dst, v_pairs(a, b));
#else
	vu pairs = (((vu)a + 0x8000u) >> 16) | (((vu)b + 0x8000u) & 0xffff0000u);
	memcpy(dst, &pairs, sizeof pairs);
#endif
}

/* Element i of an array of float32 or bfloat16. */
INLINE float ld1(const void *p, int64_t i, bool bf)
{
	return bf ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

INLINE void st1(void *p, int64_t i, float f, bool bf)
{
	if (bf)
		((uint16_t *)p)[i] = f32_to_bf16(f);
	else
		((float *)p)[i] = f;
}

INLINE vf ld(const void *p, int64_t i, bool bf)
{
	if (bf) {
		vh h;
		memcpy(&h, (const uint16_t *)p + i, sizeof h);
		return v_from_bf16(h);
	}
	vf f;
	memcpy(&f, (const float *)p + i, sizeof f);
	return f;
}

INLINE void st(void *p, int64_t i, vf f, bool bf)
{
	if (bf) {
		vh h = v_to_bf16(f);
		memcpy((uint16_t *)p + i, &h, sizeof h);
	} else {
		memcpy((float *)p + i, &f, sizeof f);
	}
}

/* The same for the first `m` of a vector's lanes (m >= 1); the other lanes read as 0. */
INLINE vf ldm(const void *p, int64_t i, int64_t m, bool bf)
{
	if (__builtin_expect(m >= VW, 1))
		return ld(p, i, bf);
	vf f = { 0 };
	for (int64_t j = 0; j < m; j++)
		f[j] = ld1(p, i + j, bf);
	return f;
}

INLINE void stm(void *p, int64_t i, vf f, int64_t m, bool bf)
{
	if (__builtin_expect(m >= VW, 1))
		st(p, i, f, bf);
	else
		for (int64_t j = 0; j < m; j++)
			st1(p, i + j, f[j], bf);
}

/* The value a float32 has after a round trip through T. */
INLINE vf v_round(vf f, bool bf) { return bf ? v_from_bf16(v_to_bf16(f)) : f; }

/* 2^r for |r| <= 1/2: minimax polynomials, relative error 2e-9, or 3e-6 (`rough`) for results that
 * are rounded to bfloat16. */
INLINE vf v_exp2_part(vf r, const bool rough)
{
	vf p;
	if (rough) {
		p = v_set(0.00957010191f) * r + v_set(0.0559178603f);
		p = p * r + v_set(0.240247448f);
		p = p * r + v_set(0.693121815f);
		return p * r + v_set(0.999999261f);
	}
	p = v_set(0.00015345812f) * r + v_set(0.00133999312f);
	p = p * r + v_set(0.00961848896f);
	p = p * r + v_set(0.0555032878f);
	p = p * r + v_set(0.240226469f);
	p = p * r + v_set(0.693147206f);
	return p * r + v_set(1.0f);
}

/* 2^t for t below 128; below -126 it stays 2^-126, NaN stays NaN. The whole part of t is added to
 * the exponent: it is what the low bits of t + 1.5 * 2^23 hold. */
INLINE vf v_exp2(vf t, const bool rough)
{
	const vf magic = v_set(0x1.8p23f);
	t = v_max(v_set(-126.0f), t);
	const vf shifted = t + magic;
	return (vf)((vu)v_exp2_part(t - (shifted - magic), rough) + ((vu)shifted << 23));
}

/* e^x to about 1 ulp for x in [-87.3, 88.3], beyond that what it is at the border; NaN stays NaN.
 * log2(e) in two parts keeps the rest of a large x exact. */
INLINE vf v_exp(vf x)
{
	const vf magic = v_set(0x1.8p23f), l2e = v_set(1.44269502f),
		 l2e_low = v_set(1.92596299e-8f);
	x = v_min(v_set(88.3f), v_max(v_set(-87.3f), x));
	const vf shifted = x * l2e + magic, n = shifted - magic;
	const vf r = x * l2e_low + (x * l2e - n);
	return (vf)((vu)v_exp2_part(r, false) + ((vu)shifted << 23));
}

/* log2 of a normal number above 0, to about 1e-7: of the mantissa, between sqrt(1/2) and sqrt(2),
 * by the series of artanh. */
INLINE vf v_log2(vf x)
{
	const vu shifted = (vu)x - 0x3f3504f3u;
	const vf m = (vf)((shifted & 0x7fffffu) + 0x3f3504f3u), f = m - v_set(1.0f),
		 s = f / (f + v_set(2.0f)), z = s * s;
	vf p = v_set(0.320598898f) * z + v_set(0.412198583f);
	p = p * z + v_set(0.577078016f);
	p = p * z + v_set(0.961796694f);
	p = p * z + v_set(2.885390082f);
	return __builtin_convertvector((vi)shifted >> 23, vf) + p * s;
}

/* Near 0 the fifth convergent of Lambert's continued fraction (remainder below 1e-9 of the result),
 * else by e^2x; NaN stays NaN. */
INLINE vf v_tanh(vf x)
{
	const vf one = v_set(1.0f), z = x * x;
	const vf near = x * (v_set(945.0f) + z * (v_set(105.0f) + z)) /
			(v_set(945.0f) + z * (v_set(420.0f) + z * v_set(15.0f)));
	const vf far = one - v_set(2.0f) / (v_exp(x + x) + one);
	return v_sel(z < v_set(0.36f), near, far);
}

/* A rational approximation, within 3.1e-7 of the result; NaN stays NaN. The coefficients are those
 * of XLA (ErfImpl32). */
INLINE vf v_erf(vf x)
{
	const vf one = v_set(1.0f), most = v_set(3.74392116f);
	x = v_min(most, v_max(-most, x));
	const vf z = x * x;
	vf p = v_set(0.000229050659f) * z + v_set(0.00340829101f);
	p = p * z + v_set(0.0509556951f);
	p = p * z + v_set(0.18520832f);
	p = p * z + v_set(1.12837914f);
	vf q = v_set(-1.1791603e-7f) * z + v_set(2.35479665e-5f);
	q = q * z + v_set(0.00101796253f);
	q = q * z + v_set(0.0140704702f);
	q = q * z + v_set(0.110985052f);
	q = q * z + v_set(0.497469251f);
	q = q * z + one;
	return v_min(one, v_max(-one, x * p / q));
}

#endif
