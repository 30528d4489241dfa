/* SPDX-License-Identifier: Apache-2.0 */
/* op_mse.c - the squared error of each row, a mean over its numbers. On a recording tape the
 * gradient of the sum of losses, times `scale`, is computed in the forward, as in op_loss.c. */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = DT_F32, .ndim = 1, .dim = { tensor_rows(a->x[0]) } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	if (n->y->needs_grad)
		TRY(tape_new(t, t->mem, x->dtype, x->ndim, x->dim, &n->saved[0], e));
	const union dev_arg a[] = {
		{ .b = n->y->at },       { .b = n->saved[0] ? n->saved[0]->at : DEV_NONE },
		{ .b = x->at },          { .b = n->a.r[0] },
		{ .i = tensor_rows(x) }, { .i = tensor_cols(x) },
		{ .f = n->a.f[0] }
	};
	return dev_launch(t->dev, K_mse, x->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return n->saved[0] ? tape_pass(t, n->a.x[0], n->saved[0], e) : 0;
}

static double flops(const struct tape_node *n) { return 4.0 * (double)tensor_count(n->a.x[0]); }
static double bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->a.x[0]); }

const struct op op_mse = { .name = "mse",
			   .shape = shape,
			   .forward = forward,
			   .backward = backward,
			   .flops = flops,
			   .bytes = bytes };

int op_mse_apply(struct tape *t, struct tensor *x, struct dev_ref target, float scale,
		 struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_mse,
			  &(struct op_args){ .x = { x }, .r = { target }, .f = { scale } }, y_p, e);
}
