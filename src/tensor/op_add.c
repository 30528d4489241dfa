/* SPDX-License-Identifier: Apache-2.0 */
/* op_add.c - y = alpha x [+ residual]: where something stands between a block and the residual
 * stream (a norm, a factor); else op_linear adds the residual itself. */
#include "tensor/ops.h"

#include "base/err.h"

enum { RESIDUAL = 1 }; /* x[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = *a->x[0];
	y->needs_grad = y->grad_written = false;
	y->grad = NULL;
}

static int axpby(struct tape *t, struct dev_ref y, const struct tensor *x, float alpha, float beta,
		 struct err *e)
{
	const union dev_arg a[] = {
		{ .b = y }, { .b = x->at }, { .i = tensor_count(x) }, { .f = alpha }, { .f = beta }
	};
	return dev_launch(t->dev, K_axpby, x->dtype, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *residual = n->a.x[RESIDUAL];
	if (residual)
		TRY(dev_copy(n->y->at, residual->at, tensor_bytes(n->y), e));
	return axpby(t, n->y->at, n->a.x[0], n->a.f[0], residual ? 1 : 0, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *residual = n->a.x[RESIDUAL], *dx;
	if (x->needs_grad) {
		int acc;
		TRY(tape_grad(t, x, &dx, &acc, e));
		TRY(axpby(t, dx->at, n->y->grad, n->a.f[0], (float)acc, e));
	}
	/* last: dy's memory becomes the residual's gradient */
	return residual && residual->needs_grad ? tape_pass(t, residual, n->y->grad, e) : 0;
}

static double flops(const struct tape_node *n) { return 2.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->y); }

const struct op op_add = { .name = "add",
			   .shape = shape,
			   .forward = forward,
			   .backward = backward,
			   .flops = flops,
			   .bytes = bytes };

int op_add_apply(struct tape *t, struct tensor *x, float alpha, struct tensor *residual,
		 struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_add, &(struct op_args){ .x = { x, residual }, .f = { alpha } },
			  y_p, e);
}
