/* SPDX-License-Identifier: Apache-2.0 */
/* lr_warmup_stable_decay.c - the full rate, and half a cosine down to lr_min_ratio over the last
 * lr_decay_ratio of the steps (Hu et al. 2024, MiniCPM, arXiv 2404.06395, section 4; the form of
 * the decay is transformers' default). */
#include "optim/optim.h"

#include <math.h>

static double share(double p, const struct lr_shape *s)
{
	double at = 1 - (1 - p) / s->decay_ratio, least = s->min_lr_ratio;
	return at <= 0 ? 1 : least + (1 - least) * 0.5 * (1 + cos(M_PI * at));
}

static const char *const aliases[] = { "warmup-stable-decay", "wsd", NULL };
static const char *const keys[] = { "lr_min_ratio", "lr_decay_ratio", NULL };

const struct lr_curve lr_warmup_stable_decay = {
	.name = "warmup_stable_decay",
	.help = "the full rate, then half a cosine over the last lr_decay_ratio of the steps",
	.aliases = aliases,
	.keys = keys,
	.share = share,
};
