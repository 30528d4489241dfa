/* SPDX-License-Identifier: Apache-2.0 */
/* optim_lion.c - Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2): the sign of a mixture of
 * momentum and gradient. The same size of step for every element, so the learning rate is three to
 * ten times below that of AdamW. */
#include "optim/optim.h"

#include "base/err.h"

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	(void)name;
	s[0] = optim_state_f32("exp_avg", (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1)));
	return 1;
}

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	int64_t first, count = param_owned(p, &first);
	(void)w;
	const union dev_arg a[] = {
		{ .b = param_value(p) },  { .b = DEV_REF(p->state[0], 0) },
		{ .b = param_grad(p) },   { .i = count },
		{ .f = s->lr },           { .f = (float)c->beta1 },
		{ .f = (float)c->beta2 }, { .f = p->decay ? (float)c->weight_decay : 0 },
		{ .f = s->scale }
	};
	return dev_launch(p->value->dev, K_lion, DT_F32, a, e);
}

static const char *const aliases[] = { "lion_pytorch", "lion_32bit", "paged_lion_32bit", NULL };
static const char *const keys[] = { "adam_beta1", "adam_beta2", NULL };
static const struct optim_default defaults[] = { { "adam_beta2", 0.99 }, { 0 } };

const struct optimizer optim_lion = {
	.name = "lion",
	.help = "Lion; one number kept for each parameter, adam_beta2 is 0.99 where not given",
	.aliases = aliases,
	.keys = keys,
	.defaults = defaults,
	.cut = CUT_BLOCK,
	.states = states,
	.update = update,
};
