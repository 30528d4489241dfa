/* SPDX-License-Identifier: Apache-2.0 */
/* op_glu.c - y = sigmoid(gate) * up. The gradient of gate takes its place; up stays, as the op that
 * made it may read it (attention does). */
#include "tensor/gated.h"

#include "base/err.h"

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_forward(t, n, K_glu_fwd, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *gate = n->a.x[0], *up = n->a.x[1], *dgate, *dup;
	int acc;
	TRY(tape_grad(t, up, &dup, &acc, e));
	if (acc || tensor_ld(gate) != tensor_cols(gate) || tensor_ld(up) != tensor_cols(up))
		return err_set(e, ERR_INTERNAL, "glu: an input that is used twice, or has gaps");
	const union dev_arg a[] = { { .b = gate->at },
				    { .b = dup->at },
				    { .b = n->y->grad->at },
				    { .b = gate->at },
				    { .b = up->at },
				    { .i = tensor_count(n->y) },
				    { .i = tensor_count(n->y) },
				    { .i = tensor_count(n->y) } };
	TRY(dev_launch(t->dev, K_glu_bwd, n->y->dtype, a, e));
	TRY(tape_tensor(t, gate->dtype, 2, gate->dim, gate->at, &dgate, e));
	return tape_pass(t, gate, dgate, e);
}

static double flops(const struct tape_node *n) { return 4.0 * (double)tensor_count(n->y); }

const struct op op_glu = { .name = "glu",
			   .shape = gated_shape,
			   .forward = forward,
			   .backward = backward,
			   .flops = flops,
			   .bytes = gated_bytes };

int op_glu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		 struct err *e)
{
	return tape_apply(t, &op_glu, &(struct op_args){ .x = { gate, up } }, y_p, e);
}
