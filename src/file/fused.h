/* SPDX-License-Identifier: Apache-2.0 */
/* fused.h - a Hugging Face folder that has the experts of a layer in one tensor. They are presented
 * as those of Qwen3-MoE: a matrix [out, in] and a bias [out] of each expert's gate_proj, up_proj
 * and down_proj.
 *
 * Of gpt-oss it is `mlp.experts.gate_up_proj` [E, in, out] or in MXFP4 `..._blocks` [E, out, in/32,
 * 16] and `..._scales` [E, out, in/32], gate and up row by row. Of Qwen3.5 it is [E, out, in], the
 * rows of gate before those of up: one matrix after the other; a folder may have a tensor for each
 * expert too, which transformers writes. Of Qwen3-VL with experts it is [E, in, out] in files of
 * the hub, [E, out, in] in those that transformers 5 writes, with gate before up in both; the sizes
 * say which, and where both are possible it is [E, out, in], as transformers reads it.
 *
 * MXFP4 (Open Compute Project, OCP Microscaling Formats 1.0, 2023): numbers of 4 bits (E2M1) in
 * blocks of 32 along a row with a scale of 8 bits, a power of two. That is what a matrix in 4 bits
 * with doubly quantised scales is (model_file.h, nf4_view) with other tables: so it is one,
 * exactly. Here the number in the low nibble comes first. */
#ifndef HS_FILE_FUSED_H
#define HS_FILE_FUSED_H

#include "file/model_file.h"

#include <jansson.h>

struct err;

/* FUSED_PLAIN: by columns, as gpt-oss has it; FUSED_HALVES: by columns, gate before up; FUSED_ROWS:
 * matrices, as Qwen3.5 has it */
enum fused_kind {
	FUSED_NOT,
	FUSED_PLAIN,
	FUSED_HALVES,
	FUSED_BIAS,
	FUSED_BLOCKS,
	FUSED_SCALES,
	FUSED_ROWS
};
enum { MX_BLOCK = 32, MX_BYTES = 16 };

/* Which rows of the experts' tensor are one module of one expert: first, first + step, ... of the
 * `wide` rows that each expert has there. */
struct fused {
	enum fused_kind kind;
	int64_t expert, first, step, wide;
};

bool fused_is_oss(const char *model_type);
/* What a tensor of the folder with this config.json and with these dimensions holds; parts_p: 2 of
 * gate and up, 1 of down. */
enum fused_kind fused_find(const json_t *config, const char *name, int ndim, const int64_t *dim,
			   int *parts_p);
/* "model.layers.3.mlp.experts.5.up_proj.weight" from the tensor's own name; part 0: gate or down,
 * 1: up. */
void fused_name(const char *name, int64_t expert, int part, char *out, size_t room);
/* Of a tensor with these dimensions: the number of experts, and rows and columns of the part. Not
 * of scales. */
int fused_shape(const char *where, const char *name, enum fused_kind k, int parts, int ndim,
		const int64_t *dim, int64_t *experts_p, int64_t shape_p[2], struct err *e);

/* The two tables of MXFP4, as in nf4_view. */
extern const float mx_code[16];
const float *mx_scales(void);
/* Blocks to float32; n is a multiple of 32. */
void mx_expand(const uint8_t *blocks, const uint8_t *scales, float *dst, uint64_t n);
/* The view of a matrix of `rows` rows of `columns` numbers; row i is at blocks + i * block_step and
 * scales + i * scale_step bytes. v_p->memory is what it points into. */
int mx_view(const uint8_t *blocks, uint64_t block_step, const uint8_t *scales, uint64_t scale_step,
	    int64_t rows, int64_t columns, struct nf4_view *v_p, struct err *e);

#endif
