/* SPDX-License-Identifier: Apache-2.0 */
/* optim_adamw_8bit.c - AdamW with moments in 8 bits, a quarter of the memory (Dettmers et al. 2022,
 * arXiv 2110.02861; numbers as bitsandbytes' AdamW8bit): codes of a dynamic
 * map, and the largest magnitude of each 256 elements. As there, parameters of fewer than 4,096
 * elements keep float32 moments. */
#include "optim/optim.h"

#include "base/err.h"

#include <math.h>

enum { BLOCK = 256, LEAST = 4096 };

static int states(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		  struct optim_state s[PARAM_STATES])
{
	(void)o;
	uint64_t n = (uint64_t)(dim[0] * (ndim == 2 ? dim[1] : 1));
	(void)name;
	s[0] = optim_state_f32("exp_avg", n);
	s[1] = optim_state_f32("exp_avg_sq", n);
	if (n < LEAST)
		return 2;
	s[0].dtype = s[1].dtype = DT_U8;
	s[2] = (struct optim_state){ "exp_avg_absmax", DT_F32, BLOCK, (n + BLOCK - 1) / BLOCK };
	s[3] = s[2];
	s[3].name = "exp_avg_sq_absmax";
	return 4;
}

static int update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		  const struct optim_step *s, const struct optim_work *w, struct err *e)
{
	(void)o;
	int64_t first, count = param_owned(p, &first);
	(void)w;
	if (!p->state[2])
		return optim_adamw_step(p, c, s, e);
	const union dev_arg a[] = { { .b = param_value(p) },
				    { .b = DEV_REF(p->state[0], 0) },
				    { .b = DEV_REF(p->state[1], 0) },
				    { .b = DEV_REF(p->state[2], 0) },
				    { .b = DEV_REF(p->state[3], 0) },
				    { .b = param_grad(p) },
				    { .i = count },
				    { .f = s->lr },
				    { .f = (float)c->beta1 },
				    { .f = (float)c->beta2 },
				    { .f = (float)c->epsilon },
				    { .f = p->decay ? (float)c->weight_decay : 0 },
				    { .f = (float)(1 - pow(c->beta1, (double)s->step)) },
				    { .f = (float)(1 - pow(c->beta2, (double)s->step)) },
				    { .f = s->scale } };
	return dev_launch(p->value->dev, K_adamw8, DT_F32, a, e);
}

static const char *const aliases[] = { "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit",
				       NULL };
static const char *const keys[] = { "adam_beta1", "adam_beta2", "adam_epsilon", NULL };

const struct optimizer optim_adamw_8bit = {
	.name = "adamw_8bit",
	.help = "AdamW with moments in 8 bits: a quarter of their memory",
	.aliases = aliases,
	.keys = keys,
	.cut = CUT_BLOCK,
	.states = states,
	.update = update,
};
