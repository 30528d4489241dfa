/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_quants.c - float32 to the block formats of ggml.
 *
 * The types with 32 numbers a block are what the package `gguf` writes, bit for bit. Those with 256
 * have freedom in how scale and minimum are chosen: here a search over scales, each followed by the
 * weighted least squares for the levels it gives; a larger number weighs more. */
#include "file/ggml_blocks.h"
#include "file/fused.h"

#include "base/err.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SUPER = 256 };
#define FITS_MOST 1e9f /* more than any block can hold; its square is finite */

static void store16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

/* Stores a scale as float16; false when it is too large. *back_p: what a reader gets. */
static bool store_scale(uint8_t *p, float d, float *back_p)
{
	uint16_t h = f32_to_f16(d);
	store16(p, h);
	*back_p = f16_to_f32(h);
	return (h & 0x7c00u) != 0x7c00u;
}

static int level(float v, int most) { return v < 0 ? 0 : v > (float)most ? most : (int)v; }

/* ---- 32 numbers a block ---- */

/* Low halves of 32 levels, and (five bits) their fifth bits before them. */
static void store_levels(uint8_t *p, const int *q, bool five)
{
	uint32_t high = 0;
	for (int j = 0; j < 32; j++)
		high |= (uint32_t)(q[j] >> 4 & 1) << j;
	if (five) {
		store16(p, (uint16_t)high);
		store16(p + 2, (uint16_t)(high >> 16));
		p += 4;
	}
	for (int j = 0; j < 16; j++)
		p[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

/* Levels around zero; the number that is farthest from it gets the lowest one. */
static bool block_symmetric(const float *x, uint8_t *p, int half)
{
	float most = 0, far = 0, back;
	int q[32];
	for (int j = 0; j < 32; j++)
		if (fabsf(x[j]) > most) {
			most = fabsf(x[j]);
			far = x[j];
		}
	float d = far / (float)-half, id = d != 0 ? 1 / d : 0;
	for (int j = 0; j < 32; j++)
		q[j] = level(x[j] * id + ((float)half + 0.5f), 2 * half - 1);
	store_levels(p + 2, q, half == 16);
	return store_scale(p, d, &back);
}

/* Levels from the smallest to the largest number. */
static bool block_affine(const float *x, uint8_t *p, int most)
{
	float lo = x[0], hi = x[0], back;
	int q[32];
	for (int j = 1; j < 32; j++) {
		lo = x[j] < lo ? x[j] : lo;
		hi = x[j] > hi ? x[j] : hi;
	}
	float d = (hi - lo) / (float)most, id = d != 0 ? 1 / d : 0;
	for (int j = 0; j < 32; j++)
		q[j] = level((x[j] - lo) * id + 0.5f, most);
	store_levels(p + 4, q, most == 31);
	const bool fits = store_scale(p, d, &back);
	return store_scale(p + 2, lo, &back) && fits;
}

static bool block_q4_0(const float *x, uint8_t *p) { return block_symmetric(x, p, 8); }
static bool block_q5_0(const float *x, uint8_t *p) { return block_symmetric(x, p, 16); }
static bool block_q4_1(const float *x, uint8_t *p) { return block_affine(x, p, 15); }
static bool block_q5_1(const float *x, uint8_t *p) { return block_affine(x, p, 31); }

static bool block_q8_0(const float *x, uint8_t *p)
{
	float most = 0, back;
	for (int j = 0; j < 32; j++)
		most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
	float d = most / 127, id = d != 0 ? 1 / d : 0;
	for (int j = 0; j < 32; j++) {
		float q = roundf(x[j] * id); /* halves away from zero, as ggml does */
		p[2 + j] = (uint8_t)(int8_t)(q > 127 ? 127 : q < -127 ? -127 : q == q ? q : 0);
	}
	return store_scale(p, d, &back);
}

/* ---- 256 numbers a block ---- */

/* x ~ scale * q - min with q = 0..most and min >= 0; returns the weighted squared error. */
static float fit_affine(const float *x, const float *w, int n, int most, float *scale_p,
			float *min_p)
{
	float lo = 0, hi = x[0], best = FLT_MAX;
	for (int j = 0; j < n; j++) {
		lo = x[j] < lo ? x[j] : lo;
		hi = x[j] > hi ? x[j] : hi;
	}
	*scale_p = 0;
	*min_p = -lo;
	if (hi <= lo)
		return 0;
	for (int step = -10; step <= 10; step++) {
		float id = ((float)most + 0.1f * (float)step) / (hi - lo);
		float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0, error = 0;
		int q[32];
		for (int j = 0; j < n; j++) {
			q[j] = level((x[j] - lo) * id + 0.5f, most);
			float l = (float)q[j];
			sw += w[j];
			sq += w[j] * l;
			sqq += w[j] * l * l;
			sx += w[j] * x[j];
			sxq += w[j] * x[j] * l;
		}
		float det = sw * sqq - sq * sq;
		if (det <= 0)
			continue;
		float d = (sw * sxq - sx * sq) / det, m = (sqq * sx - sq * sxq) / det;
		if (m > 0) { /* the format has no place for it */
			m = 0;
			d = sqq > 0 ? sxq / sqq : 0;
		}
		for (int j = 0; j < n; j++) {
			float miss = d * (float)q[j] + m - x[j];
			error += w[j] * miss * miss;
		}
		if (error < best && d > 0) {
			best = error;
			*scale_p = d;
			*min_p = -m;
		}
	}
	if (best == FLT_MAX)
		*scale_p = (hi - lo) / (float)most;
	return best;
}

/* x ~ scale * q with q = -half..half-1. */
static void fit_symmetric(const float *x, const float *w, int n, int half, float *scale_p)
{
	float most = 0, far = 0, best = FLT_MAX;
	for (int j = 0; j < n; j++)
		if (fabsf(x[j]) > most) {
			most = fabsf(x[j]);
			far = x[j];
		}
	*scale_p = 0;
	if (most < 1e-30f)
		return;
	for (int step = -9; step <= 9; step++) {
		float id = ((float)-half + 0.1f * (float)step) / far, sxq = 0, sqq = 0, sxx = 0;
		for (int j = 0; j < n; j++) {
			float l =
				(float)(level(x[j] * id + (float)half + 0.5f, 2 * half - 1) - half);
			sxq += w[j] * x[j] * l;
			sqq += w[j] * l * l;
			sxx += w[j] * x[j] * x[j];
		}
		if (sqq <= 0)
			continue;
		float error = sxx - sxq * sxq / sqq; /* of the best scale for these levels */
		if (error < best) {
			best = error;
			*scale_p = sxq / sqq;
		}
	}
}

static void pack_scales(uint8_t *p, const int *scale, const int *min)
{
	memset(p, 0, 12);
	for (int j = 0; j < 8; j++)
		if (j < 4) {
			p[j] |= (uint8_t)scale[j];
			p[j + 4] |= (uint8_t)min[j];
		} else {
			p[j + 4] = (uint8_t)((scale[j] & 15) | (min[j] & 15) << 4);
			p[j - 4] |= (uint8_t)((scale[j] >> 4) << 6);
			p[j] |= (uint8_t)((min[j] >> 4) << 6);
		}
}

/* Eight parts of 32, each with scale and minimum of six bits: Q4_K (most 15), Q5_K (31). The levels
 * are left in q[SUPER]. */
static bool super_affine(const float *x, uint8_t *p, int most, int *q)
{
	float scale[8], min[8], top = 0, deep = 0, d, dmin;
	int s[8], m[8];
	for (int i = 0; i < 8; i++) {
		const float *v = x + 32 * i;
		float w[32], sum = 0;
		for (int j = 0; j < 32; j++)
			sum += v[j] * v[j];
		float mean = sqrtf(sum / 32);
		for (int j = 0; j < 32; j++)
			w[j] = mean + fabsf(v[j]);
		fit_affine(v, w, 32, most, &scale[i], &min[i]);
		top = scale[i] > top ? scale[i] : top;
		deep = min[i] > deep ? min[i] : deep;
	}
	bool fits = store_scale(p, top / 63, &d);
	fits &= store_scale(p + 2, deep / 63, &dmin);
	for (int i = 0; i < 8; i++) {
		s[i] = level(top > 0 ? scale[i] / top * 63 + 0.5f : 0, 63);
		m[i] = level(deep > 0 ? min[i] / deep * 63 + 0.5f : 0, 63);
		float part = d * (float)s[i], least = dmin * (float)m[i];
		for (int j = 0; j < 32; j++)
			q[32 * i + j] =
				part > 0 ? level((x[32 * i + j] + least) / part + 0.5f, most) : 0;
	}
	pack_scales(p + 4, s, m);
	return fits;
}

static bool block_q4_k(const float *x, uint8_t *p)
{
	int q[SUPER];
	bool fits = super_affine(x, p, 15, q);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 32; j++)
			p[16 + 32 * i + j] = (uint8_t)(q[64 * i + j] | q[64 * i + 32 + j] << 4);
	return fits;
}

static bool block_q5_k(const float *x, uint8_t *p)
{
	int q[SUPER];
	bool fits = super_affine(x, p, 31, q);
	memset(p + 16, 0, 32);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 32; j++) {
			int lo = q[64 * i + j], hi = q[64 * i + 32 + j];
			p[48 + 32 * i + j] = (uint8_t)((lo & 15) | (hi & 15) << 4);
			p[16 + j] |= (uint8_t)((lo >> 4) << (2 * i) | (hi >> 4) << (2 * i + 1));
		}
	return fits;
}

/* Sixteen parts of 16, each with a scale of eight bits. */
static bool block_q6_k(const float *x, uint8_t *p)
{
	float scale[16], far = 0, d;
	int q[SUPER];
	for (int i = 0; i < 16; i++) {
		float w[16];
		for (int j = 0; j < 16; j++)
			w[j] = x[16 * i + j] * x[16 * i + j];
		fit_symmetric(x + 16 * i, w, 16, 32, &scale[i]);
		far = fabsf(scale[i]) > fabsf(far) ? scale[i] : far;
	}
	bool fits = store_scale(p + 208, far / -128, &d);
	for (int i = 0; i < 16; i++) {
		int s = d != 0 ? level(scale[i] / d + 128.5f, 255) - 128 : 0;
		float part = d * (float)s;
		p[192 + i] = (uint8_t)(int8_t)s;
		for (int j = 0; j < 16; j++)
			q[16 * i + j] = part != 0 ? level(x[16 * i + j] / part + 32.5f, 63) : 32;
	}
	memset(p, 0, 192);
	for (int half = 0; half < 2; half++)
		for (int part = 0; part < 4; part++)
			for (int j = 0; j < 32; j++) {
				int v = q[128 * half + 32 * part + j];
				p[64 * half + part % 2 * 32 + j] |=
					(uint8_t)((v & 15) << (part / 2 * 4));
				p[128 + 32 * half + j] |= (uint8_t)((v >> 4) << (2 * part));
			}
	return fits;
}

/* The scale makes the largest number one of 4 to below 8 steps of a half; the nearest of the 16
 * values, of two the one with the lower index, as quantize_row_mxfp4_ref() of ggml. */
static bool block_mxfp4(const float *x, uint8_t *p)
{
	float far = 0;
	memset(p, 0, 17);
	for (int i = 0; i < 32; i++)
		far = fabsf(x[i]) > far ? fabsf(x[i]) : far;
	const int e = far > 0 ? ilogbf(far) - 2 + 127 : 0;
	p[0] = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
	const float d = mx_scales()[p[0]];
	for (int i = 0; i < 32; i++) {
		int best = 0;
		for (int k = 1; k < 16; k++)
			if (fabsf(mx_code[k] * d - x[i]) < fabsf(mx_code[best] * d - x[i]))
				best = k;
		p[1 + i % 16] |= (uint8_t)(best << (i / 16 * 4));
	}
	return true;
}

static const struct {
	int type;
	bool (*block)(const float *x, uint8_t *p);
} makers[] = { { GGML_Q4_0, block_q4_0 }, { GGML_Q4_1, block_q4_1 }, { GGML_Q5_0, block_q5_0 },
	       { GGML_Q5_1, block_q5_1 }, { GGML_Q8_0, block_q8_0 }, { GGML_Q4_K, block_q4_k },
	       { GGML_Q5_K, block_q5_k }, { GGML_Q6_K, block_q6_k }, { GGML_MXFP4, block_mxfp4 } };

bool ggml_can_quantize(int type)
{
	for (size_t i = 0; i < ARRAY_LEN(makers); i++)
		if (makers[i].type == type)
			return true;
	return false;
}

int ggml_quantize(int type, const float *x, void *dst, uint64_t n, struct err *e)
{
	int block, bytes;
	const char *name;
	size_t k = 0;
	while (k < ARRAY_LEN(makers) && makers[k].type != type)
		k++;
	if (k == ARRAY_LEN(makers) || !ggml_type_info(type, &block, &bytes, &name))
		return err_set(e, ERR_UNSUPPORTED, "the ggml type %d (%s) is not written", type,
			       ggml_type_name(type));
	if (n % (uint64_t)block)
		return err_set(e, ERR_INTERNAL, "%llu numbers are not a multiple of a block of %s",
			       (unsigned long long)n, name);
	long long bad = -1;
#pragma omp parallel for schedule(static)
	for (uint64_t i = 0; i < n / (uint64_t)block; i++) {
		const float *v = x + i * (uint64_t)block;
		bool fits = true;
		for (int j = 0; j < block; j++)
			fits &= fabsf(v[j]) <= FITS_MOST;
		fits = fits && makers[k].block(v, (uint8_t *)dst + i * (uint64_t)bytes);
		if (!fits)
#pragma omp atomic write
			bad = (long long)i;
	}
	if (bad < 0)
		return 0;
	float most = 0;
	for (int j = 0; j < block; j++)
		most = fmaxf(most, fabsf(x[bad * block + j]));
	return err_set(e, ERR_INPUT, "a value of %g or one that is no number does not fit %s",
		       (double)most, name);
}
