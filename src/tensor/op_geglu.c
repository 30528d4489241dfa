/* SPDX-License-Identifier: Apache-2.0 */
/* op_geglu.c - y = gelu(gate) * up, gelu by its tanh form. */
#include "tensor/gated.h"

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_forward(t, n, K_geglu_fwd, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_backward(t, n, K_geglu_bwd, e);
}

static double flops(const struct tape_node *n) { return 10.0 * (double)tensor_count(n->y); }

const struct op op_geglu = { .name = "geglu",
			     .shape = gated_shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = gated_bytes };

int op_geglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		   struct err *e)
{
	return tape_apply(t, &op_geglu, &(struct op_args){ .x = { gate, up } }, y_p, e);
}
