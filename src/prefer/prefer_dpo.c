/* SPDX-License-Identifier: Apache-2.0 */
/* prefer_dpo.c - Rafailov et al. 2023 (arXiv 2305.18290), equation 7, with label smoothing
 * (Mitchell's conservative DPO) and the likelihood of RPO (Pang et al. 2024, arXiv 2404.19733). */
#include "prefer/prefer.h"
#include "prefer/sigmoid.h"

static void sums(const struct prefer_options *o, const struct prefer_pass *p, struct prefer_sums *s)
{
	for (int64_t c = 0, r = 1; r < 2 * p->rows; c += 2, r += 2) {
		double dx;
		const double chosen = p->logp[c] - p->ref[c], rejected = p->logp[r] - p->ref[r];
		s->loss += smooth_loss(o->beta * (chosen - rejected), o->smoothing, &dx);
		s->dlogp[c] = o->beta * dx;
		s->dlogp[r] = -o->beta * dx;
		s->reward[c] = o->beta * chosen;
		s->reward[r] = o->beta * rejected;
	}
	s->dnll = o->likelihood * (double)p->rows / (double)p->nll_count;
	s->loss += s->dnll * p->nll;
}

static const char *const keys[] = { "rl_beta", "dpo_label_smoothing", "rpo_alpha", NULL };

const struct prefer prefer_dpo = { .name = "dpo",
				   .help = "Direct Preference Optimization",
				   .keys = keys,
				   .data = PREFER_PAIRS,
				   .reference = true,
				   .likelihood = "rpo_alpha",
				   .sums = sums };
