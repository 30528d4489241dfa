/* SPDX-License-Identifier: Apache-2.0 */
/* prefer_ipo.c - Azar et al. 2023 (arXiv 2310.12036), equation 17; per token, as TRL. */
#include "prefer/prefer.h"

static void sums(const struct prefer_options *o, const struct prefer_pass *p, struct prefer_sums *s)
{
	for (int64_t c = 0, r = 1; r < 2 * p->rows; c += 2, r += 2) {
		const double nc = (double)p->count[c], nr = (double)p->count[r];
		const double chosen = (p->logp[c] - p->ref[c]) / nc,
			     rejected = (p->logp[r] - p->ref[r]) / nr;
		const double x = chosen - rejected - 1 / (2 * o->beta);
		s->loss += x * x;
		s->dlogp[c] = 2 * x / nc;
		s->dlogp[r] = -2 * x / nr;
		s->reward[c] = o->beta * chosen;
		s->reward[r] = o->beta * rejected;
	}
}

static const char *const keys[] = { "rl_beta", NULL };

const struct prefer prefer_ipo = { .name = "ipo",
				   .help = "Identity Preference Optimization",
				   .keys = keys,
				   .data = PREFER_PAIRS,
				   .reference = true,
				   .sums = sums };
