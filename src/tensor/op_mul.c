/* SPDX-License-Identifier: Apache-2.0 */
/* op_mul.c - y = a * b, number by number. The gradients take the places of a and b, which may lie
 * in wider rows (op_slice.c). */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], a->x[0]->dim[1] } };
}

/* How wide a row is, and how far those of a and of b are apart; what lies without gaps is one
 * row. */
static void places(const struct tape_node *n, int64_t *width_p, int64_t ld[2])
{
	const int64_t cols = tensor_cols(n->y);
	*width_p = cols;
	for (int i = 0; i < 2; i++)
		ld[i] = tensor_ld(n->a.x[i]);
	if (ld[0] == cols && ld[1] == cols)
		*width_p = ld[0] = ld[1] = tensor_count(n->y);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	int64_t width, ld[2];
	places(n, &width, ld);
	const union dev_arg a[] = { { .b = n->y->at },      { .b = n->a.x[0]->at },
				    { .b = n->a.x[1]->at }, { .i = tensor_count(n->y) },
				    { .i = width },         { .i = ld[0] },
				    { .i = ld[1] } };
	return dev_launch(t->dev, K_mul_fwd, n->y->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *const *x = n->a.x;
	int64_t width, ld[2];
	places(n, &width, ld);
	const union dev_arg a[] = { { .b = x[0]->at },       { .b = x[1]->at },
				    { .b = n->y->grad->at }, { .b = x[0]->at },
				    { .b = x[1]->at },       { .i = tensor_count(n->y) },
				    { .i = width },          { .i = ld[0] },
				    { .i = ld[1] } };
	TRY(dev_launch(t->dev, K_mul_bwd, n->y->dtype, a, e));
	for (int i = 0; i < 2; i++) {
		struct tensor *dx;
		TRY(tape_tensor(t, x[i]->dtype, 2, x[i]->dim, x[i]->at, &dx, e));
		dx->ld = x[i]->ld;
		TRY(tape_pass(t, x[i], dx, e));
	}
	return 0;
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->y); }

const struct op op_mul = { .name = "mul",
			   .shape = shape,
			   .forward = forward,
			   .backward = backward,
			   .flops = flops,
			   .bytes = bytes };

int op_mul_apply(struct tape *t, struct tensor *a, struct tensor *b, struct tensor **y_p,
		 struct err *e)
{
	return tape_apply(t, &op_mul, &(struct op_args){ .x = { a, b } }, y_p, e);
}
