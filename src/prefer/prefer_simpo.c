/* SPDX-License-Identifier: Apache-2.0 */
/* prefer_simpo.c - Meng et al. 2024 (arXiv 2405.14734), equation 6, with the likelihood that TRL's
 * CPO trainer adds (cpo_alpha; 0 is SimPO alone). */
#include "prefer/prefer.h"
#include "prefer/sigmoid.h"

static void sums(const struct prefer_options *o, const struct prefer_pass *p, struct prefer_sums *s)
{
	for (int64_t c = 0, r = 1; r < 2 * p->rows; c += 2, r += 2) {
		const double nc = (double)p->count[c], nr = (double)p->count[r];
		const double chosen = p->logp[c] / nc, rejected = p->logp[r] / nr;
		double dx;
		s->loss += smooth_loss(o->beta * (chosen - rejected) - o->gamma, 0, &dx);
		s->dlogp[c] = o->beta * dx / nc;
		s->dlogp[r] = -o->beta * dx / nr;
		s->reward[c] = o->beta * chosen;
		s->reward[r] = o->beta * rejected;
	}
	s->dnll = o->likelihood * (double)p->rows / (double)p->nll_count;
	s->loss += s->dnll * p->nll;
}

static const char *const keys[] = { "rl_beta", "simpo_gamma", "cpo_alpha", NULL };

const struct prefer prefer_simpo = { .name = "simpo",
				     .help = "SimPO, of TRL's CPO trainer; no reference",
				     .keys = keys,
				     .data = PREFER_PAIRS,
				     .likelihood = "cpo_alpha",
				     .sums = sums };
