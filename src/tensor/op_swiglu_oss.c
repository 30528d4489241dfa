/* SPDX-License-Identifier: Apache-2.0 */
/* op_swiglu_oss.c - the SwiGLU of gpt-oss: clamped, with a gain and one more up (kernel.def). */
#include "tensor/gated.h"

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_forward(t, n, K_swiglu_oss_fwd, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return gated_backward(t, n, K_swiglu_oss_bwd, e);
}

static double flops(const struct tape_node *n) { return 9.0 * (double)tensor_count(n->y); }

const struct op op_swiglu_oss = { .name = "swiglu_oss",
				  .shape = gated_shape,
				  .forward = forward,
				  .backward = backward,
				  .flops = flops,
				  .bytes = gated_bytes };

int op_swiglu_oss_apply(struct tape *t, struct tensor *gate, struct tensor *up, float alpha,
			float limit, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_swiglu_oss,
			  &(struct op_args){ .x = { gate, up }, .f = { alpha, limit } }, y_p, e);
}
