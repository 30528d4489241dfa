/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_types.h - which number format each matrix of a written GGUF gets, by the name that
 * llama-quantize knows the mixture by ("q4_k_m"). */
#ifndef HS_FILE_GGUF_TYPES_H
#define HS_FILE_GGUF_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum gguf_out {
	GGUF_OUT_F16,
	GGUF_OUT_BF16,
	GGUF_OUT_F32,
	GGUF_OUT_Q8_0,
	GGUF_OUT_Q4_0,
	GGUF_OUT_Q4_1,
	GGUF_OUT_Q5_0,
	GGUF_OUT_Q5_1,
	GGUF_OUT_Q4_K_M,
	GGUF_OUT_Q5_K_M,
	GGUF_OUT_Q6_K,
	GGUF_OUT_AS_BASE, /* every tensor as it is in the base */
};

struct gguf_place {
	const char *name;      /* of the tensor in the file: "blk.3.attn_v.weight" */
	int64_t layer, layers; /* layer -1: of none */
	int64_t columns;
	bool tied; /* token_embd.weight is the head too */
	int base;  /* ggml_type of this tensor in the base */
};

/* general.file_type; -1 for GGUF_OUT_AS_BASE. */
int gguf_file_type(enum gguf_out out);
/* The ggml_type of a matrix. Where a row is not a multiple of the block, the next larger format
 * with a smaller block. */
int gguf_matrix_type(enum gguf_out out, const struct gguf_place *p);

#endif
