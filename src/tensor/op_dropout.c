/* SPDX-License-Identifier: Apache-2.0 */
/* op_dropout.c - y = x*keep/(1-p), the mask drawn from a key and from where each row stands (kernel
 * dropout). Nothing is saved: backward draws the same mask again. */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = *a->x[0];
	y->needs_grad = y->grad_written = false;
	y->grad = NULL;
}

static int mask(struct tape *t, const struct tape_node *n, struct dev_ref y, const struct tensor *x,
		int acc, struct err *e)
{
	const union dev_arg a[] = { { .b = y },
				    { .b = x->at },
				    { .b = n->a.r[0] },
				    { .i = tensor_rows(x) },
				    { .i = tensor_cols(x) },
				    { .i = acc },
				    { .f = n->a.f[0] },
				    { .u = n->a.u } };
	return dev_launch(t->dev, K_dropout, x->dtype, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return mask(t, n, n->y->at, n->a.x[0], 0, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	int acc;
	if (!x->needs_grad)
		return 0;
	TRY(tape_grad(t, x, &dx, &acc, e));
	return mask(t, n, dx->at, n->y->grad, acc, e);
}

static double flops(const struct tape_node *n) { return 2.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_dropout = { .name = "dropout",
			       .shape = shape,
			       .forward = forward,
			       .backward = backward,
			       .flops = flops,
			       .bytes = bytes };

int op_dropout_apply(struct tape *t, struct tensor *x, float p, struct dev_ref at, uint64_t key,
		     struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_dropout,
			  &(struct op_args){ .x = { x }, .r = { at }, .f = { p }, .u = key }, y_p,
			  e);
}
