/* SPDX-License-Identifier: Apache-2.0 */
/* prefer_orpo.c - Hong et al. 2024 (arXiv 2403.07691), equations 4 and 7: the likelihood of the
 * chosen sequence, its prompt included as in TRL, and the odds ratio of the answers per token. */
#include "prefer/prefer.h"
#include "prefer/sigmoid.h"

static void sums(const struct prefer_options *o, const struct prefer_pass *p, struct prefer_sums *s)
{
	for (int64_t c = 0, r = 1; r < 2 * p->rows; c += 2, r += 2) {
		const double nc = (double)p->count[c], nr = (double)p->count[r];
		const double chosen = p->logp[c] / nc, rejected = p->logp[r] / nr;
		const double not_chosen = -expm1(chosen), not_rejected = -expm1(rejected);
		const double odds = chosen - rejected - (log(not_chosen) - log(not_rejected));
		const double dodds = -o->beta * sigmoid(-odds);
		s->loss -= o->beta * log_sigmoid(odds);
		s->dlogp[c] = dodds / not_chosen / nc;
		s->dlogp[r] = -dodds / not_rejected / nr;
		s->reward[c] = o->beta * chosen;
		s->reward[r] = o->beta * rejected;
	}
	s->dnll = (double)p->rows / (double)p->nll_count;
	s->loss += s->dnll * p->nll;
}

static const char *const keys[] = { "rl_beta", "orpo_alpha", NULL };

const struct prefer prefer_orpo = { .name = "orpo",
				    .help = "Odds Ratio Preference Optimization; no reference",
				    .keys = keys,
				    .data = PREFER_PAIRS,
				    .prompts = true,
				    .sums = sums };
