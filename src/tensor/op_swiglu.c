/* SPDX-License-Identifier: Apache-2.0 */
/* op_swiglu.c - y = silu(gate) * up. */
#include "tensor/gated.h"

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_forward(t, n, K_swiglu_fwd, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_backward(t, n, K_swiglu_bwd, e);
}

static double flops(const struct tape_node *n) { return 5.0 * (double)tensor_count(n->y); }

const struct op op_swiglu = { .name = "swiglu",
			      .shape = gated_shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = gated_bytes };

int op_swiglu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		    struct err *e)
{
	return tape_apply(t, &op_swiglu, &(struct op_args){ .x = { gate, up } }, y_p, e);
}
