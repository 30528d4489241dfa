/* SPDX-License-Identifier: Apache-2.0 */
/* optim_adamw.c - AdamW (Loshchilov & Hutter 2019, algorithm 2); the step is in step.c. */
#include "optim/optim.h"

#include "base/err.h"

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	(void)w;
	return optim_adamw_step(p, c, s, e);
}

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	uint64_t n = (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1));
	(void)name;
	s[0] = optim_state_f32("exp_avg", n);
	s[1] = optim_state_f32("exp_avg_sq", n);
	return 2;
}

static const char *const aliases[] = { "adamw_torch", "adamw_torch_fused", "paged_adamw_32bit",
				       NULL };
static const char *const keys[] = { "adam_beta1", "adam_beta2", "adam_epsilon", NULL };

const struct optimizer optim_adamw = {
	.name = "adamw",
	.help = "AdamW; two numbers kept for each parameter",
	.aliases = aliases,
	.keys = keys,
	.cut = CUT_BLOCK,
	.states = states,
	.update = update,
};
