/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - tensors in device memory, and the memory they live in.
 *
 * Shapes are written in these letters: N tokens of a microbatch (its sequences one after the
 * other, no padding, so there is no (B,T)), S sequences, C width, H query heads, G key/value
 * heads, D head width, V vocabulary, F feed-forward width, R LoRA rank. Row-major, contiguous but
 * for columns of another tensor. A gradient is `dx`.
 *
 * Memory: a `struct dmem` is a stack of device memory. Tensors are taken from its top and given
 * back all at once down to a mark. Once it has grown to the size that a step needs, nothing is
 * allocated any more. A tensor's struct lives in a host arena and does not own its bytes. */
#ifndef HS_TENSOR_TENSOR_H
#define HS_TENSOR_TENSOR_H

#include "base/arena.h"
#include "base/dtype.h"
#include "dev/dev.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

struct tensor {
	enum dtype dtype;
	int ndim;
	int64_t dim[4];
	struct dev_ref at;
	/* Some columns of `whole`, from column `from` on (op_slice.c): rows are `ld` numbers apart.
	 * NULL and 0: rows lie one behind the other */
	struct tensor *whole;
	int64_t from, ld;
	bool needs_grad;     /* an op below needs dx */
	bool grad_written;   /* grad holds a value: the next contribution is added */
	struct tensor *grad; /* NULL until the first contribution */
};

static inline int64_t tensor_count(const struct tensor *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->ndim; i++)
		n *= t->dim[i];
	return n;
}

static inline size_t tensor_bytes(const struct tensor *t)
{
	return (size_t)tensor_count(t) * dtype_size(t->dtype);
}
static inline int64_t tensor_rows(const struct tensor *t) { return t->ndim ? t->dim[0] : 1; }
/* Elements of one row: the product of all dimensions but the first. */
static inline int64_t tensor_cols(const struct tensor *t)
{
	return t->dim[0] ? tensor_count(t) / t->dim[0] : 0;
}

static inline int64_t tensor_ld(const struct tensor *t) { return t->ld ? t->ld : tensor_cols(t); }

/* A stack of device memory: blocks that are kept, and how far each is filled. What is taken comes
 * from the block that it fills best, so a block's end that is too small for one tensor serves a
 * smaller one. When the stack is empty again, it becomes one block of the peak size. */
struct dmem {
	struct dev *dev;
	struct dmem_block {
		struct dev_buf *buf;
		size_t used;
	} * block;
	struct dmem_piece {
		size_t block, at; /* which one it is in, and how far that was filled before */
	} * piece;
	size_t nblock, block_cap, pieces, piece_cap;
	size_t block_bytes; /* least size of a new block */
	size_t bytes, peak; /* in use; most at once */
	bool divided;       /* the device has no single block of the peak size */
	struct dev_buf *panel[2];
};

struct dmem_mark {
	size_t pieces, bytes;
};

void dmem_init(struct dmem *m, struct dev *dev, size_t block_bytes);
/* frees everything */
void dmem_release(struct dmem *m);
/* 64-byte aligned, not cleared */
int dmem_take(struct dmem *m, size_t bytes, struct dev_ref *r_p, struct err *e);
/* `bytes` more will be taken: the part that has no room yet gets one block, instead of several with
 * gaps at their ends. The blocks of an empty stack that are too small give way to one. */
void dmem_expect(struct dmem *m, size_t bytes);
/* One of two places beside the stack, in turn. A card whose next weights come into the other one
 * need not wait for the product that reads this one. */
int dmem_panel(struct dmem *m, size_t bytes, struct dev_ref *r_p, struct err *e);
size_t dmem_most(const struct dmem *m); /* bytes of the stack at its highest, and of the panels */
struct dmem_mark dmem_mark(const struct dmem *m);
void dmem_back(struct dmem *m, struct dmem_mark k); /* gives back everything taken since the mark */
void dmem_reset(struct dmem *m);

#endif
