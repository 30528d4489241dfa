/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - see dtype.h. */
#include "base/dtype.h"

float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u, u;
	if (e == 31) {
		u = sign | 0x7f800000u | (m << 13);
	} else if (e) {
		u = sign | ((e + 112u) << 23) | (m << 13);
	} else if (m) { /* subnormal: m * 2^-24 is exact in float32 */
		float f = (float)m * 0x1p-24f;
		return sign ? -f : f;
	} else {
		u = sign;
	}
	float f;
	memcpy(&f, &u, 4);
	return f;
}

uint16_t f32_to_f16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
	if (a > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
	if (a >= 0x477ff000u) /* rounds to 65536 or more */
		return (uint16_t)(sign | 0x7c00u);
	if (a < 0x38800000u) { /* subnormal result: let the float adder round */
		float m;
		memcpy(&m, &a, 4);
		m += 0.5f; /* unit in the last place of 0.5 is 2^-24 */
		uint32_t r;
		memcpy(&r, &m, 4);
		return (uint16_t)(sign | (r - 0x3f000000u));
	}
	uint32_t odd = (a >> 13) & 1u;
	return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13));
}

void dtype_to_f32(enum dtype t, const void *src, float *dst, uint64_t n)
{
	const uint16_t *h = src;
	if (t == DT_F32)
		memcpy(dst, src, n * 4);
	else if (t == DT_BF16)
		for (uint64_t i = 0; i < n; i++)
			dst[i] = bf16_to_f32(h[i]);
	else if (t == DT_F16)
		for (uint64_t i = 0; i < n; i++)
			dst[i] = f16_to_f32(h[i]);
	else if (t == DT_F64)
		for (uint64_t i = 0; i < n; i++)
			dst[i] = (float)((const double *)src)[i];
}

void dtype_from_f32(enum dtype t, const float *src, void *dst, uint64_t n)
{
	uint16_t *h = dst;
	if (t == DT_F32)
		memcpy(dst, src, n * 4);
	else if (t == DT_BF16)
		for (uint64_t i = 0; i < n; i++)
			h[i] = f32_to_bf16(src[i]);
	else if (t == DT_F16)
		for (uint64_t i = 0; i < n; i++)
			h[i] = f32_to_f16(src[i]);
	else if (t == DT_F64)
		for (uint64_t i = 0; i < n; i++)
			((double *)dst)[i] = src[i];
}
