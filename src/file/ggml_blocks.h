/* SPDX-License-Identifier: Apache-2.0 */
/* ggml_blocks.h - the number formats of ggml: sizes, and conversion from and to float32.
 *
 * Reading is bit for bit what the package `gguf` (quants.py) computes, which is what ggml-quants.c
 * computes; so is writing, but for the K types (ggml_quants.c).
 * Reading is declared in model_file.h (ggml_type_info, ggml_dequantize). A block holds 32 numbers
 * (256 for the K types) of one row. */
#ifndef HS_FILE_GGML_BLOCKS_H
#define HS_FILE_GGML_BLOCKS_H

#include "file/model_file.h"

enum ggml_type {
	GGML_F32 = 0,
	GGML_F16 = 1,
	GGML_Q4_0 = 2,
	GGML_Q4_1 = 3,
	GGML_Q5_0 = 6,
	GGML_Q5_1 = 7,
	GGML_Q8_0 = 8,
	GGML_Q4_K = 12,
	GGML_Q5_K = 13,
	GGML_Q6_K = 14,
	GGML_I8 = 24,
	GGML_I32 = 26,
	GGML_I64 = 27,
	GGML_F64 = 28,
	GGML_BF16 = 30,
	GGML_MXFP4 = 39,
};

/* The name of any type, also of those that are not read: "Q2_K"; "unknown" beyond the list. */
const char *ggml_type_name(int ggml_type);

/* n numbers (a multiple of the block) to blocks of one of the types from Q4_0 to MXFP4, see
 * ggml_quants.c. ERR_INPUT when a number is not finite or too large for a float16 scale. */
int ggml_quantize(int ggml_type, const float *src, void *dst, uint64_t n, struct err *e);
bool ggml_can_quantize(int ggml_type);

#endif
