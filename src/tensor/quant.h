/* SPDX-License-Identifier: Apache-2.0 */
/* quant.h - 4-bit NormalFloat, bit for bit as bitsandbytes stores it.
 *
 * QLoRA (Dettmers et al. 2023, section 3, appendix E). A weight is flattened row-major and cut into
 * blocks of 64 numbers (blocks may cross rows; the last one may be short). Per block absmax =
 * max|w|; each number becomes the index of the nearest of 16 code values to w/absmax, compared with
 * the midpoints between neighbours; two to a byte, the first in the high nibble. Double
 * quantisation: offset = mean(absmax); absmax - offset is cut into blocks of 256, each scaled by
 * its own absmax2 and stored as the index of the nearest value of a 256-entry dynamic map. */
#ifndef HS_TENSOR_QUANT_H
#define HS_TENSOR_QUANT_H

#include "tensor/param.h"

enum { NF4_BLOCK = 64, NF4_BLOCK2 = 256 };

extern const float nf4_code[16];
const float *nf4_code2(void); /* the dynamic map: 256 values, ascending */

/* Blocks [first_block, ...) of a weight: n numbers beginning at a block's start. packed: (n+1)/2
 * bytes, absmax: ceil(n/64). */
void nf4_quantize(const float *src, uint64_t n, uint8_t *packed, float *absmax);
/* All block scales of one weight: absmax8 (n), absmax2 (ceil(n/256)), offset. */
void nf4_quantize_absmax(const float *absmax, uint64_t n, uint8_t *absmax8, float *absmax2,
			 float *offset_p);

/* The host's view of a finished weight, for loading one that is already in 4 bits. Shapes as in
 * file/model_file.h's nf4_view. */
struct nf4_parts {
	const uint8_t *packed;
	const float *absmax; /* or NULL when double-quantised */
	const uint8_t *absmax8;
	const float *code, *code2, *absmax2;
	float offset;
	int block;
	void *memory; /* NULL, or what was made for it: the caller's, for mem_free() */
};

/* A frozen parameter [out,in] from finished parts. */
int param_init_nf4(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		   const struct nf4_parts *q, struct err *e);

/* A frozen parameter [out,in] from float32 rows that `rows` supplies in parts (row0,
 * count, destination). */
typedef int (*param_rows_fn)(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e);
int param_quantize_nf4(struct param *p, struct dev *d, const char *name, const int64_t dim[2],
		       bool double_quant, param_rows_fn rows, void *ctx, struct err *e);

/* Rows of an NF4 weight on the host, as float32. */
int nf4_expand_host(const struct param *p, int64_t row0, int64_t rows, float *dst, struct err *e);

#endif
