/* SPDX-License-Identifier: Apache-2.0 */
/* tape.h - ops, and the tape that runs them backwards.
 *
 * An op (struct op, rows of op.def) says what shape comes out, how to compute it and how to
 * carry a gradient back. tape_apply() runs one forward and, on a recording tape, remembers
 * it; tape_backward() visits what was remembered in reverse and adds gradients: to tensors in
 * the activation dtype, to trained parameters in float32. A gradient that is not needed is
 * not computed.
 *
 * Memory: outputs and what backward needs come from `mem` and stay until the owner of `mem` takes
 * them back; temporaries and gradients of activations come from `scratch`. Tape nodes come from
 * `host`. A tape never frees. */
#ifndef HS_TENSOR_TAPE_H
#define HS_TENSOR_TAPE_H

#include "tensor/param.h"
#include "tensor/tensor.h"

struct op_args {
	struct tensor *x[3]; /* inputs; NULL: not given */
	struct param *p[4];  /* parameters; NULL: not given */
	struct dev_ref r[4]; /* index and table buffers, not differentiated */
	int64_t i[6];
	float f[2];
	uint64_t u;
};

struct tape_node {
	const struct op *op;
	struct op_args a;
	struct tensor *y;
	struct tensor *saved[2]; /* for backward; NULL: none */
	struct tape_node *prev;
};

struct tape {
	struct dev *dev;
	enum dtype act; /* dtype of activations */
	struct dmem *mem, *scratch;
	struct arena *host;
	bool record;
	struct tape_node *last;
};

struct op {
	const char *name;
	bool in_place; /* y lies where x[0] lies */
	/* Fills in y's dtype and dimensions from the arguments. */
	void (*shape)(const struct tape *t, const struct op_args *a, struct tensor *y);
	int (*forward)(struct tape *t, struct tape_node *n, struct err *e);
	/* n->y->grad has been set */
	int (*backward)(struct tape *t, struct tape_node *n, struct err *e);
	/* Of the forward pass: multiplications and additions (2 for each multiply-add), and the
	 * least number of bytes moved. */
	double (*flops)(const struct tape_node *n);
	double (*bytes)(const struct tape_node *n);
};

#define OP(name) extern const struct op op_##name;
#include "tensor/op.def"
#undef OP
extern const struct op *const ops[]; /* ops.c; NULL-terminated */

int tape_apply(struct tape *t, const struct op *op, const struct op_args *a, struct tensor **y_p,
	       struct err *e);
/* y->grad must have been set (tape_seed). */
int tape_backward(struct tape *t, struct err *e);
/* Forgets the nodes; their memory belongs to the owner of `host`. */
void tape_reset(struct tape *t);

/* A tensor struct around existing memory. */
int tape_tensor(struct tape *t, enum dtype dtype, int ndim, const int64_t *dim, struct dev_ref at,
		struct tensor **y_p, struct err *e);
/* A new tensor with memory from `m`. */
int tape_new(struct tape *t, struct dmem *m, enum dtype dtype, int ndim, const int64_t *dim,
	     struct tensor **y_p, struct err *e);
/* Says that the gradient of y lies at `at`. */
int tape_seed(struct tape *t, struct tensor *y, struct dev_ref at, struct err *e);

/* For ops: where to put (acc 0) or add (acc 1) a contribution to dx. */
int tape_grad(struct tape *t, struct tensor *x, struct tensor **dx_p, int *acc_p, struct err *e);
/* For ops: dx += dy where y and x have one shape; when x has no gradient yet, dy's memory becomes
 * its gradient, so dy must not be used afterwards. */
int tape_pass(struct tape *t, struct tensor *x, struct tensor *dy, struct err *e);

/* The ops with named arguments; the results are in the tape's dtype. */

/* y (N,C) = rows ids (N) i32 of table (V,C). */
int op_embed_apply(struct tape *t, struct param *table, struct dev_ref ids, int64_t n,
		   struct tensor **y_p, struct err *e);
/* y = x normalised over its last dimension, times w (width): x (N,C) with width C, or x (N,H,D)
 * with width D for the per-head norms of Qwen3. */
int op_rmsnorm_apply(struct tape *t, struct tensor *x, struct param *w, int64_t width, float eps,
		     struct tensor **y_p, struct err *e);
/* In place on x (N,H,D); pos (N) i32, inv_freq (D/2) f32. */
int op_rope_apply(struct tape *t, struct tensor *x, struct dev_ref pos, struct dev_ref inv_freq,
		  float scale, struct tensor **y_p, struct err *e);

struct lora {                /* Hu et al. 2021: y += scale * drop(x) A^T B^T */
	struct param *a, *b; /* A (R,in), B (out,R) */
	float scale, dropout;
	struct dev_ref at; /* (N,2) i32 places of the tokens, for the mask (kernel.def); or NONE */
};

/* y (N,out) = x (N,in) w^T [+ bias (out)] [+ residual (N,out)] [+ LoRA], w (out,in). `key`
 * determines the dropout mask. */
int op_linear_apply(struct tape *t, struct tensor *x, struct param *w, struct param *bias,
		    const struct lora *lora, uint64_t key, struct tensor *residual,
		    struct tensor **y_p, struct err *e);
/* q (N,H,D), k and v (Nk,G,D) -> y (N,H*D). starts, kstarts (S+1) i32, S = nseq (kernel.def,
 * attn_fwd); backward needs them equal. */
int op_attention_apply(struct tape *t, struct tensor *q, struct tensor *k, struct tensor *v,
		       struct dev_ref starts, struct dev_ref kstarts, int64_t nseq, int64_t window,
		       float scale, struct tensor **y_p, struct err *e);
/* y (N,F) = silu(gate (N,F)) * up (N,F) */
int op_swiglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		    struct err *e);
/* y = alpha x [+ residual], all of one shape */
int op_add_apply(struct tape *t, struct tensor *x, float alpha, struct tensor *residual,
		 struct tensor **y_p, struct err *e);
/* Cross-entropy of the rows `rows` (n i32) of x (N,C) against `labels` (n i32) through head (V,C):
 * the losses, (n) f32; in `hits` (n f32, or DEV_NONE) 1 where the label is the likeliest. The (n,V)
 * logits exist only in blocks of rows; on a recording tape dx is computed in the forward, for the
 * sum of the losses. The logits are multiplied by `factor`. */
int op_loss_apply(struct tape *t, struct tensor *x, struct param *head, struct dev_ref rows,
		  struct dev_ref labels, struct dev_ref hits, int64_t n, float factor, float scale,
		  struct tensor **y_p, struct err *e);

#endif
