/* SPDX-License-Identifier: Apache-2.0 */
/* optim_adamw.c - AdamW (Loshchilov & Hutter 2019, algorithm 2), bias corrections computed
 * in double. */
#include "optim/optim.h"

#include "base/err.h"

#include <math.h>

static int update(struct param *p, const struct optim_config *c, const struct optim_step *s,
		  struct err *e)
{
	double bc1 = 1 - pow(c->beta1, (double)s->step), bc2 = 1 - pow(c->beta2, (double)s->step);
	const union dev_arg a[] = { { .b = DEV_REF(p->value, 0) },
				    { .b = DEV_REF(p->state[0], 0) },
				    { .b = DEV_REF(p->state[1], 0) },
				    { .b = DEV_REF(p->grad, 0) },
				    { .i = param_count(p) },
				    { .f = s->lr },
				    { .f = (float)c->beta1 },
				    { .f = (float)c->beta2 },
				    { .f = (float)c->epsilon },
				    { .f = p->decay ? (float)c->weight_decay : 0 },
				    { .f = (float)bc1 },
				    { .f = (float)bc2 },
				    { .f = s->scale } };
	return dev_launch(p->value->dev, K_adamw, DT_F32, a, e);
}

static const char *const names[] = { "exp_avg", "exp_avg_sq" };

static const char *const aliases[] = { "adamw_torch", "adamw_torch_fused", NULL };
static const char *const keys[] = { "adam_beta1", "adam_beta2", "adam_epsilon", NULL };

const struct optimizer optim_adamw = {
	.name = "adamw",
	.help = "AdamW; two numbers kept for each parameter",
	.aliases = aliases,
	.keys = keys,
	.states = 2,
	.state_names = names,
	.update = update,
};
