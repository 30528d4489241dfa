/* SPDX-License-Identifier: Apache-2.0 */
/* own_act.c - activations: each number for itself. */
#include "model/own.h"

static const char *fit(struct own_block *b)
{
	b->out = b->in;
	return 0;
}

#define ACT(name_, kind, help_)                                                                    \
	static int forward_##name_(struct own_run *r, const struct own_block *b, struct tensor *x, \
				   struct tensor **y_p, struct err *e)                             \
	{                                                                                          \
		(void)b;                                                                           \
		return op_act_apply(r->t, x, kind, y_p, e);                                        \
	}                                                                                          \
	const struct own_kind own_##name_ = {                                                      \
		.name = #name_, .help = help_, .fit = fit, .forward = forward_##name_              \
	};

ACT(relu, ACT_RELU, "max(x, 0): nn.ReLU")
ACT(gelu, ACT_GELU, "x times the normal distribution: nn.GELU()")
ACT(gelu_tanh, ACT_GELU_TANH, "the same by tanh: nn.GELU('tanh')")
ACT(silu, ACT_SILU, "x times the sigmoid of x: nn.SiLU")
ACT(tanh, ACT_TANH, "nn.Tanh")
ACT(sigmoid, ACT_SIGMOID, "nn.Sigmoid")
