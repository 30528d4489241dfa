/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h - number formats of tensors, in memory, in files and on the wire.
 *
 * Rank 0 because files, devices, links and tensors all name them. Values are stable: they travel in
 * frames. Block formats (quantised) are described where they are defined: NF4 in tensor/quant.h,
 * GGUF blocks in file/gguf.h. */
#ifndef HS_BASE_DTYPE_H
#define HS_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

enum dtype {
	DT_F32 = 0,
	DT_BF16 = 1,
	DT_F16 = 2,
	DT_I32 = 3,
	DT_U8 = 4,
	DT_I8 = 5,
	DT_F64 = 6,
	DT_I64 = 7,
	DT_COUNT
};

/* What a user asks to compute in. Auto: bfloat16 where it is native, else float16 where that is,
 * else float32. */
enum compute_dtype { COMPUTE_AUTO, COMPUTE_FLOAT32, COMPUTE_BFLOAT16, COMPUTE_FLOAT16 };

static inline unsigned dtype_size(enum dtype t)
{
	static const unsigned char size[DT_COUNT] = { 4, 2, 2, 4, 1, 1, 8, 8 };
	return (unsigned)t < DT_COUNT ? size[t] : 0;
}

static inline const char *dtype_name(enum dtype t)
{
	static const char *const name[DT_COUNT] = { "float32", "bfloat16", "float16", "int32",
						    "uint8",   "int8",     "float64", "int64" };
	return (unsigned)t < DT_COUNT ? name[t] : "?";
}

void dtype_to_f32(enum dtype t, const void *src, float *dst, uint64_t n);
void dtype_from_f32(enum dtype t, const float *src, void *dst, uint64_t n);

/* The value a number has after it was stored in a float format. */
static inline float dtype_round(enum dtype t, float v)
{
	uint64_t room;
	dtype_from_f32(t, &v, &room, 1);
	dtype_to_f32(t, &room, &v, 1);
	return v;
}

/* bfloat16: the upper half of a float32, rounded to nearest even; NaN stays NaN. */
static inline float bf16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static inline uint16_t f32_to_bf16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)((u >> 16) | 0x40);
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t h); /* IEEE 754 binary16, exact */
uint16_t f32_to_f16(float f); /* round to nearest even, overflow to infinity */

/* Converts n numbers between float32 and `t` (float formats only). */
void dtype_to_f32(enum dtype t, const void *src, float *dst, uint64_t n);
void dtype_from_f32(enum dtype t, const float *src, void *dst, uint64_t n);

#endif
