/* SPDX-License-Identifier: Apache-2.0 */
/* op_act.c - y = f(x), element by element: ReLU, GELU, SiLU, tanh, sigmoid (kernel act_fwd). */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = *a->x[0];
	y->needs_grad = y->grad_written = false;
	y->grad = NULL;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const union dev_arg a[] = {
		{ .b = n->y->at }, { .b = x->at }, { .i = tensor_count(x) }, { .i = n->a.i[0] }
	};
	return dev_launch(t->dev, K_act_fwd, x->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	int acc;
	if (!x->needs_grad)
		return 0;
	TRY(tape_grad(t, x, &dx, &acc, e));
	const union dev_arg a[] = { { .b = dx->at },    { .b = n->y->grad->at },
				    { .b = x->at },     { .i = tensor_count(x) },
				    { .i = n->a.i[0] }, { .i = acc } };
	return dev_launch(t->dev, K_act_bwd, x->dtype, a, e);
}

static double flops(const struct tape_node *n) { return 8.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_act = { .name = "act",
			   .shape = shape,
			   .forward = forward,
			   .backward = backward,
			   .flops = flops,
			   .bytes = bytes };

int op_act_apply(struct tape *t, struct tensor *x, enum activation kind, struct tensor **y_p,
		 struct err *e)
{
	return tape_apply(t, &op_act, &(struct op_args){ .x = { x }, .i = { kind } }, y_p, e);
}
