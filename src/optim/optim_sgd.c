/* SPDX-License-Identifier: Apache-2.0 */
/* optim_sgd.c - stochastic gradient descent with momentum and L2 decay, as torch.optim.SGD. */
#include "optim/optim.h"

#include "base/err.h"

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	int64_t first, count = param_owned(p, &first);
	(void)w;
	const union dev_arg a[] = { { .b = param_value(p) },
				    { .b = DEV_REF(p->state[0], 0) },
				    { .b = param_grad(p) },
				    { .i = count },
				    { .f = s->lr },
				    { .f = (float)c->momentum },
				    { .f = p->decay ? (float)c->weight_decay : 0 },
				    { .f = s->scale } };
	return dev_launch(p->value->dev, K_sgd, DT_F32, a, e);
}

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	(void)name;
	s[0] = optim_state_f32("momentum_buffer", (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1)));
	return 1;
}

static const char *const keys[] = { "momentum", NULL };

const struct optimizer optim_sgd = {
	.name = "sgd",
	.help = "stochastic gradient descent with momentum; one number kept for each parameter",
	.keys = keys,
	.cut = CUT_BLOCK,
	.states = states,
	.update = update,
};
