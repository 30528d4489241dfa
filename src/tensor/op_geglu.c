/* SPDX-License-Identifier: Apache-2.0 */
/* op_geglu.c - y = gelu(gate) * up (Shazeer 2020), gelu by tanh. The gradients are written
 * over gate and up, which are not needed afterwards. */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], a->x[0]->dim[1] } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->a.x[0]->at },
				    { .b = n->a.x[1]->at },
				    { .i = tensor_count(n->y) } };
	return dev_launch(t->dev, K_geglu_fwd, n->y->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *gate = n->a.x[0], *up = n->a.x[1];
	const union dev_arg a[] = {
		{ .b = gate->at }, { .b = up->at }, { .b = n->y->grad->at },
		{ .b = gate->at }, { .b = up->at }, { .i = tensor_count(n->y) }
	};
	TRY(dev_launch(t->dev, K_geglu_bwd, n->y->dtype, a, e));
	struct tensor *in[2] = { gate, up };
	for (int i = 0; i < 2; i++) {
		struct tensor *dx;
		TRY(tape_tensor(t, in[i]->dtype, 2, in[i]->dim, in[i]->at, &dx, e));
		TRY(tape_pass(t, in[i], dx, e));
	}
	return 0;
}

static double flops(const struct tape_node *n) { return 10.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->y); }

const struct op op_geglu = { .name = "geglu",
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = bytes };

int op_geglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		   struct err *e)
{
	return tape_apply(t, &op_geglu, &(struct op_args){ .x = { gate, up } }, y_p, e);
}
