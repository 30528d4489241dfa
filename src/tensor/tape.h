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
 * them back; temporaries and gradients of activations come from `scratch`. Outputs that no backward
 * reads may come from elsewhere (`out`), and be gone before it. Tape nodes come from `host`. A tape
 * never frees. */
#ifndef HS_TENSOR_TAPE_H
#define HS_TENSOR_TAPE_H

#include "tensor/param.h"
#include "tensor/tensor.h"

struct op_args {
	struct tensor *x[3]; /* inputs; NULL: not given */
	struct param *p[5];  /* parameters; NULL: not given */
	struct dev_ref r[4]; /* index and table buffers, not differentiated */
	int64_t i[6];
	float f[3];
	uint64_t u;
	const void *of; /* what an op has beside these, which lives as long as the node */
	bool trains;    /* something in `of` is trained */
};

struct tape_node {
	const struct op *op;
	struct op_args a;
	struct tensor *y;
	struct tensor *saved[3]; /* for backward; NULL: none */
	void *parts;             /* of an op that is made of others */
	struct tape_node *prev;
};

struct tape {
	struct dev *dev;
	enum dtype act; /* dtype of activations */
	struct dmem *mem, *scratch;
	struct dmem *out; /* where outputs of ops go instead of `mem`; NULL: there */
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

#endif
