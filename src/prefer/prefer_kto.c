/* SPDX-License-Identifier: Apache-2.0 */
/* prefer_kto.c - Ethayarajh et al. 2024 (arXiv 2402.01306), equation 7. The baseline is the mean
 * over a pass of the log-ratios of mismatched answers, at least 0, and has no gradient. */
#include "prefer/prefer.h"
#include "prefer/sigmoid.h"

static void sums(const struct prefer_options *o, const struct prefer_pass *p, struct prefer_sums *s)
{
	double base = 0;
	for (int64_t i = 1; i < 2 * p->rows; i += 2)
		base += p->logp[i] - p->ref[i];
	base /= (double)p->rows;
	base = base < 0 ? 0 : base;
	for (int64_t i = 0; i < 2 * p->rows; i += 2) {
		const double sign = p->good[i / 2] ? 1 : -1, weight = sign > 0 ? o->good : o->bad;
		const double ratio = p->logp[i] - p->ref[i];
		const double x = sigmoid(sign * o->beta * (ratio - base));
		s->loss += weight * (1 - x);
		s->dlogp[i] = -sign * weight * o->beta * x * (1 - x);
		s->reward[i] = o->beta * ratio;
	}
}

static const char *const keys[] = { "rl_beta", "kto_desirable_weight", "kto_undesirable_weight",
				    NULL };

const struct prefer prefer_kto = {
	.name = "kto",
	.help = "Kahneman-Tversky Optimization: single answers with a label",
	.keys = keys,
	.data = PREFER_SINGLE,
	.reference = true,
	.sums = sums
};
