/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_layout.h - how the numbers of a tensor lie in a GGUF, against those of Hugging Face.
 *
 * - Rows of Q and K of some families are interleaved within each head: the file's row
 *   head*D + 2j + half is row head*D + half*D/2 + j of Hugging Face (convert_hf_to_gguf.py,
 *   LlamaModel.permute).
 * - Value heads of linear attention are grouped by their key head in Hugging Face and dealt out in
 *   the file: block j*keys + k there is block k*per + j (conversion/qwen.py,
 *   _LinearAttentionVReorderBase). Rows of what makes values and what is by value head; columns of
 *   the last module.
 * - Weights of norms are stored plus one; the decay A_log as -exp(A_log). */
#ifndef HS_FILE_GGUF_LAYOUT_H
#define HS_FILE_GGUF_LAYOUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct gguf_arch;

/* What the layouts of a model depend on. */
struct gguf_heads {
	int64_t dim;                  /* of a head of attention */
	int64_t keys, values, dk, dv; /* of linear attention: heads, and their widths; 0: none */
	int64_t conv;                 /* width of its convolution */
};

/* Of linear attention, from config.json, with what is meant there when a key is missing. */
int gguf_linear_heads(const json_t *config, const char *where, struct gguf_heads *h, struct err *e);

/* Behind the first `first` rows or columns: keys*per blocks of `width`; per 0: as they are. */
struct gguf_tiles {
	int64_t first, width, keys, per;
};

enum gguf_number { GGUF_SAME, GGUF_PLUS_ONE, GGUF_DECAY };

struct gguf_layout {
	int64_t rotary; /* D; 0: rows are not interleaved */
	struct gguf_tiles rows, columns;
	enum gguf_number number;
};

/* Of the tensor, or module, with this name in Hugging Face. ERR_INPUT: its shape does not go with
 * `h`. */
int gguf_layout_of(const struct gguf_arch *a, const struct gguf_heads *h, const char *name,
		   int64_t rows, int64_t columns, const char *where, struct gguf_layout *l,
		   struct err *e);
bool gguf_layout_moves(const struct gguf_layout *l); /* rows or columns */

/* The row of the file that holds a row of Hugging Face, and the other way. */
int64_t gguf_row_of_hf(const struct gguf_layout *l, int64_t row);
int64_t hf_row_of_gguf(const struct gguf_layout *l, int64_t row);
/* How many rows from this one on follow each other on the other side too; the same for both. */
int64_t gguf_layout_run(const struct gguf_layout *l, int64_t row, int64_t rows);
/* n rows of `columns` numbers from the order of Hugging Face to that of the file, or back. `x` and
 * `y` must not overlap. */
void gguf_columns_of_hf(const struct gguf_layout *l, const float *x, float *y, int64_t n,
			int64_t columns);
void hf_columns_of_gguf(const struct gguf_layout *l, const float *x, float *y, int64_t n,
			int64_t columns);
/* Numbers as they are stored, in place, and back. ERR_INPUT: a decay that is not negative. */
void gguf_numbers_of_hf(const struct gguf_layout *l, float *x, uint64_t n);
int hf_numbers_of_gguf(const struct gguf_layout *l, float *x, uint64_t n, const char *name,
		       struct err *e);

#endif
