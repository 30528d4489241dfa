/* SPDX-License-Identifier: Apache-2.0 */
/* nf4.c - expanding NF4 weights: a table of 16 scaled values per block, looked up by shuffles where
 * there are any.
 *
 * Layout (bitsandbytes): the weight is one flat run of nibbles, element 2i in the high half of byte
 * i; element e belongs to block e / block, so blocks may cross rows. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec.h"

#include "base/err.h"

struct nf4 {
	char *dst;
	const uint8_t *packed;
	const void *absmax;
	const float *code, *code2, *absmax2;
	int64_t in, row0, nr, col0, nc, ldd, block, per;
	float offset;
	bool bf;
};

INLINE int nibble(const uint8_t *p, int64_t e) { return e & 1 ? p[e >> 1] & 15 : p[e >> 1] >> 4; }

/* dst[0..n) = tab[element e0 + i] */
INLINE void expand(const uint8_t *p, int64_t e0, int64_t n, const float tab[16], void *dst,
		   const bool bf)
{
	int64_t i = 0;
	if (e0 & 1 && n)
		st1(dst, i++, tab[nibble(p, e0)], bf);
	p += (e0 + i) >> 1;
	const int64_t base = i;
#if defined(__AVX512BW__)
	const __m512 t = _mm512_loadu_ps(tab);
	if (bf) {
		/* 32 elements from 16 bytes; the lookup takes five bits of index, so the table lies
		 * there twice */
		const vh h = v_to_bf16((vf)t);
		const __m512i tt = _mm512_broadcast_i64x4((__m256i)h);
		for (; i + 32 <= n; i += 32) {
			__m512i b = _mm512_cvtepu8_epi32(
				_mm_loadu_si128((const __m128i *)(p + ((i - base) >> 1))));
			__m512i ix =
				_mm512_or_si512(_mm512_srli_epi32(b, 4), _mm512_slli_epi32(b, 16));
			_mm512_storeu_si512((uint16_t *)dst + i, _mm512_permutexvar_epi16(ix, tt));
		}
	} else {
		for (; i + 16 <= n; i += 16) {
			__m512i b = _mm512_cvtepu8_epi64(
				_mm_loadl_epi64((const __m128i *)(p + ((i - base) >> 1))));
			__m512i ix =
				_mm512_or_si512(_mm512_srli_epi64(b, 4), _mm512_slli_epi64(b, 32));
			_mm512_storeu_ps((float *)dst + i, _mm512_permutexvar_ps(ix, t));
		}
	}
#elif defined(__AVX2__)
	const __m256 lo = _mm256_loadu_ps(tab), hi = _mm256_loadu_ps(tab + 8);
	for (; i + 8 <= n; i += 8) {
		int32_t four;
		memcpy(&four, p + ((i - base) >> 1), 4);
		__m256i b = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
		__m256i ix = _mm256_or_si256(_mm256_srli_epi64(b, 4), _mm256_slli_epi64(b, 32));
		__m256 v = _mm256_blendv_ps(_mm256_permutevar8x32_ps(lo, ix),
					    _mm256_permutevar8x32_ps(hi, ix),
					    _mm256_castsi256_ps(_mm256_slli_epi32(ix, 28)));
		st(dst, i, (vf)v, bf);
	}
#else
	if (bf) {
		uint16_t h[16];
		for (int k = 0; k < 16; k++)
			h[k] = f32_to_bf16(tab[k]);
		for (; i + 2 <= n; i += 2) {
			uint8_t b = p[(i - base) >> 1];
			((uint16_t *)dst)[i] = h[b >> 4];
			((uint16_t *)dst)[i + 1] = h[b & 15];
		}
	} else {
		for (; i + 2 <= n; i += 2) {
			uint8_t b = p[(i - base) >> 1];
			((float *)dst)[i] = tab[b >> 4];
			((float *)dst)[i + 1] = tab[b & 15];
		}
	}
#endif
	for (; i < n; i++)
		st1(dst, i, tab[nibble(p, i - base)], bf);
}

INLINE float absmax_of(const struct nf4 *x, int64_t b)
{
	if (!x->code2)
		return ((const float *)x->absmax)[b];
	return x->code2[((const uint8_t *)x->absmax)[b]] * x->absmax2[b >> 8] + x->offset;
}

INLINE void rows(const struct nf4 *x, int64_t r0, int64_t r1, const bool bf)
{
	for (int64_t r = r0; r < r1; r++) {
		int64_t e = (x->row0 + r) * x->in + x->col0, left = x->nc, b = e / x->block,
			room = (b + 1) * x->block - e;
		char *d = x->dst + (size_t)(r * x->ldd) * (bf ? 2 : 4);
		while (left) {
			int64_t n = left < room ? left : room;
			float tab[16], s = absmax_of(x, b);
			for (int k = 0; k < 16; k++)
				tab[k] = x->code[k] * s;
			if (__builtin_expect(n == 64 && !(e & 1), 1))
				expand(x->packed + (e >> 1), 0, 64, tab, d, bf);
			else
				expand(x->packed, e, n, tab, d, bf);
			d += n * (bf ? 2 : 4);
			e += n;
			left -= n;
			b++;
			room = x->block;
		}
	}
}

static void nf4_chunk(void *ctx, int64_t i, int thread)
{
	(void)thread;
	const struct nf4 *x = ctx;
	const int64_t r0 = i * x->per, r1 = r0 + x->per < x->nr ? r0 + x->per : x->nr;
	if (x->bf)
		rows(x, r0, r1, true);
	else
		rows(x, r0, r1, false);
}

int CPU_SYM(cpu_nf4_dequant)(struct cpu *c, enum dtype t, const union dev_arg *a, struct err *e)
{
	struct nf4 x = { .dst = cpu_ptr(a[0]),
			 .packed = cpu_ptr(a[1]),
			 .absmax = cpu_ptr(a[2]),
			 .code = cpu_ptr(a[3]),
			 .code2 = cpu_ptr(a[4]),
			 .absmax2 = cpu_ptr(a[5]),
			 .in = a[6].i,
			 .row0 = a[7].i,
			 .nr = a[8].i,
			 .col0 = a[9].i,
			 .nc = a[10].i,
			 .ldd = a[11].i,
			 .block = a[12].i,
			 .offset = a[13].f,
			 .bf = t == DT_BF16 };
	if (x.block < 1 || (x.code2 && !x.absmax2))
		return err_set(e, ERR_INTERNAL, "nf4_dequant: block %lld%s", (long long)x.block,
			       x.code2 ? " without absmax2" : "");
	if (!x.nc)
		return 0;
	x.per = x.nc > 16384 ? 1 : 16384 / x.nc;
	cpu_par(c, (x.nr + x.per - 1) / x.per, nf4_chunk, &x);
	return 0;
}
