/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_blocks.c - see ggml_blocks.h. Loops have constant trip counts so that the compiler turns
 * them into vectors; products and sums are rounded one by one (the Makefile forbids contraction in
 * this folder), because the reference does so. */
#include "file/ggml_blocks.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/fused.h"

#include <float.h>
#include <math.h>

typedef void (*expand_fn)(const uint8_t *src, float *dst, uint64_t blocks);

static uint16_t load16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t load32(const uint8_t *p) { return load16(p) | (uint32_t)load16(p + 2) << 16; }
static float load_f16(const uint8_t *p) { return f16_to_f32(load16(p)); }

static void expand_f32(const uint8_t *src, float *dst, uint64_t n) { memcpy(dst, src, n * 4); }

/* Exact and without branches: shifted into place an f16 is a float32 of an exponent 112 too small;
 * infinities and NaN are corrected afterwards. */
static void expand_f16(const uint8_t *src, float *dst, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint16_t h;
		memcpy(&h, src + 2 * i, 2);
		uint32_t u = (uint32_t)(h & 0x7fffu) << 13,
			 special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
		float f;
		memcpy(&f, &u, 4);
		f *= 0x1p112f;
		memcpy(&u, &f, 4);
		u |= special | (uint32_t)(h & 0x8000u) << 16;
		memcpy(dst + i, &u, 4);
	}
}

static void expand_bf16(const uint8_t *src, float *dst, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint16_t h;
		memcpy(&h, src + 2 * i, 2);
		dst[i] = bf16_to_f32(h);
	}
}

static void expand_f64(const uint8_t *src, float *dst, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		double d;
		memcpy(&d, src + 8 * i, 8);
		dst[i] = (float)d;
	}
}

static void expand_q4_0(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 18, y += 32) {
		float d = load_f16(p);
		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)((p[2 + j] & 15) - 8);
			y[j + 16] = d * (float)((p[2 + j] >> 4) - 8);
		}
	}
}

/* A scale that is a power of two, and numbers of 4 bits (fused.h), the second half of the block in
 * the high nibbles. */
static void expand_mxfp4(const uint8_t *p, float *y, uint64_t n)
{
	const float *scale = mx_scales();
	for (; n; n--, p += 17, y += 32) {
		const float d = scale[p[0]];
		for (int j = 0; j < 16; j++) {
			y[j] = d * mx_code[p[1 + j] & 15];
			y[j + 16] = d * mx_code[p[1 + j] >> 4];
		}
	}
}

static void expand_q4_1(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 20, y += 32) {
		float d = load_f16(p), m = load_f16(p + 2);
		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)(p[4 + j] & 15) + m;
			y[j + 16] = d * (float)(p[4 + j] >> 4) + m;
		}
	}
}

static void expand_q5_0(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 22, y += 32) {
		float d = load_f16(p);
		uint32_t qh = load32(p + 2);
		for (int j = 0; j < 16; j++) {
			int lo = (p[6 + j] & 15) | (int)(qh >> j & 1) << 4,
			    hi = p[6 + j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
			y[j] = d * (float)(lo - 16);
			y[j + 16] = d * (float)(hi - 16);
		}
	}
}

static void expand_q5_1(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 24, y += 32) {
		float d = load_f16(p), m = load_f16(p + 2);
		uint32_t qh = load32(p + 4);
		for (int j = 0; j < 16; j++) {
			int lo = (p[8 + j] & 15) | (int)(qh >> j & 1) << 4,
			    hi = p[8 + j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
			y[j] = d * (float)lo + m;
			y[j + 16] = d * (float)hi + m;
		}
	}
}

static void expand_q8_0(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 34, y += 32) {
		float d = load_f16(p);
		for (int j = 0; j < 32; j++)
			y[j] = d * (float)(int8_t)p[2 + j];
	}
}

/* Scale and minimum of sub-block j, 6 bits each, from the 12 bytes of Q4_K and Q5_K
 * (ggml: get_scale_min_k4). */
static void scale_min(const uint8_t *s, int j, uint8_t *scale_p, uint8_t *min_p)
{
	if (j < 4) {
		*scale_p = s[j] & 63;
		*min_p = s[j + 4] & 63;
	} else {
		*scale_p = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
		*min_p = (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
	}
}

static void expand_q4_k(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 144) {
		float d = load_f16(p), dmin = load_f16(p + 2);
		const uint8_t *q = p + 16;
		for (int j = 0; j < 8; j += 2, q += 32, y += 64) {
			uint8_t s0, m0, s1, m1;
			scale_min(p + 4, j, &s0, &m0);
			scale_min(p + 4, j + 1, &s1, &m1);
			float d0 = d * s0, min0 = dmin * m0, d1 = d * s1, min1 = dmin * m1;
			for (int l = 0; l < 32; l++) {
				y[l] = d0 * (float)(q[l] & 15) - min0;
				y[l + 32] = d1 * (float)(q[l] >> 4) - min1;
			}
		}
	}
}

static void expand_q5_k(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 176) {
		float d = load_f16(p), dmin = load_f16(p + 2);
		const uint8_t *qh = p + 16, *q = p + 48;
		for (int j = 0; j < 8; j += 2, q += 32, y += 64) {
			uint8_t s0, m0, s1, m1;
			scale_min(p + 4, j, &s0, &m0);
			scale_min(p + 4, j + 1, &s1, &m1);
			float d0 = d * s0, min0 = dmin * m0, d1 = d * s1, min1 = dmin * m1;
			for (int l = 0; l < 32; l++) {
				y[l] = d0 * (float)((q[l] & 15) | (qh[l] >> j & 1) << 4) - min0;
				y[l + 32] = d1 * (float)(q[l] >> 4 | (qh[l] >> (j + 1) & 1) << 4) -
					    min1;
			}
		}
	}
}

static void expand_q6_k(const uint8_t *p, float *y, uint64_t n)
{
	for (; n; n--, p += 210) {
		float d = load_f16(p + 208);
		const uint8_t *ql = p, *qh = p + 128;
		const int8_t *scale = (const int8_t *)p + 192;
		for (int half = 0; half < 2; half++, ql += 64, qh += 32, scale += 8, y += 128) {
			for (int part = 0; part < 8; part++) { /* 16 numbers that share a scale */
				const uint8_t *l = ql + part % 4 * 16, *h = qh + part % 2 * 16;
				int low = part < 4 ? 0 : 4, high = part / 2 * 2;
				float s = d * scale[part];
				for (int i = 0; i < 16; i++)
					y[part * 16 + i] = s * (float)(((l[i] >> low & 15) |
									(h[i] >> high & 3) << 4) -
								       32);
			}
		}
	}
}

/* All types by number; those without `expand` have a name but are not supported, or (integers) are
 * not weights. */
static const struct {
	const char *name;
	int block, bytes;
	expand_fn expand;
} types[] = {
	[GGML_F32] = { "F32", 1, 4, expand_f32 },
	[GGML_F16] = { "F16", 1, 2, expand_f16 },
	[GGML_Q4_0] = { "Q4_0", 32, 18, expand_q4_0 },
	[GGML_Q4_1] = { "Q4_1", 32, 20, expand_q4_1 },
	[4] = { "Q4_2", 0, 0, NULL },
	[5] = { "Q4_3", 0, 0, NULL },
	[GGML_Q5_0] = { "Q5_0", 32, 22, expand_q5_0 },
	[GGML_Q5_1] = { "Q5_1", 32, 24, expand_q5_1 },
	[GGML_Q8_0] = { "Q8_0", 32, 34, expand_q8_0 },
	[9] = { "Q8_1", 0, 0, NULL },
	[10] = { "Q2_K", 0, 0, NULL },
	[11] = { "Q3_K", 0, 0, NULL },
	[GGML_Q4_K] = { "Q4_K", 256, 144, expand_q4_k },
	[GGML_Q5_K] = { "Q5_K", 256, 176, expand_q5_k },
	[GGML_Q6_K] = { "Q6_K", 256, 210, expand_q6_k },
	[15] = { "Q8_K", 0, 0, NULL },
	[16] = { "IQ2_XXS", 0, 0, NULL },
	[17] = { "IQ2_XS", 0, 0, NULL },
	[18] = { "IQ3_XXS", 0, 0, NULL },
	[19] = { "IQ1_S", 0, 0, NULL },
	[20] = { "IQ4_NL", 0, 0, NULL },
	[21] = { "IQ3_S", 0, 0, NULL },
	[22] = { "IQ2_S", 0, 0, NULL },
	[23] = { "IQ4_XS", 0, 0, NULL },
	[GGML_I8] = { "I8", 1, 1, NULL },
	[25] = { "I16", 0, 0, NULL },
	[GGML_I32] = { "I32", 1, 4, NULL },
	[GGML_I64] = { "I64", 1, 8, NULL },
	[GGML_F64] = { "F64", 1, 8, expand_f64 },
	[29] = { "IQ1_M", 0, 0, NULL },
	[GGML_BF16] = { "BF16", 1, 2, expand_bf16 },
	[34] = { "TQ1_0", 0, 0, NULL },
	[35] = { "TQ2_0", 0, 0, NULL },
	[GGML_MXFP4] = { "MXFP4", 32, 17, expand_mxfp4 },
	[40] = { "NVFP4", 0, 0, NULL },
};

const char *ggml_type_name(int t)
{
	return t >= 0 && t < (int)ARRAY_LEN(types) && types[t].name ? types[t].name : "unknown";
}

bool ggml_type_info(int t, int *block_p, int *bytes_p, const char **name_p)
{
	if (t < 0 || t >= (int)ARRAY_LEN(types) || !types[t].block)
		return false;
	*block_p = types[t].block;
	*bytes_p = types[t].bytes;
	*name_p = types[t].name;
	return true;
}

int ggml_dequantize(int t, const void *src, float *dst, uint64_t n, struct err *e)
{
	if (t < 0 || t >= (int)ARRAY_LEN(types) || !types[t].expand)
		return err_set(e, ERR_UNSUPPORTED, "numbers of the ggml type %d (%s) are not read",
			       t, ggml_type_name(t));
	if (n % (uint64_t)types[t].block)
		return err_set(e, ERR_INTERNAL, "%llu numbers are not a multiple of a block of %s",
			       (unsigned long long)n, types[t].name);
	types[t].expand(src, dst, n / (uint64_t)types[t].block);
	return 0;
}
