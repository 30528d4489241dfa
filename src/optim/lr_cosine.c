/* SPDX-License-Identifier: Apache-2.0 */
/* lr_cosine.c - r + (1 - r) * (1 + cos(pi p)) / 2, r being cosine_min_lr_ratio (Loshchilov
 * & Hutter 2017, SGDR, eq. 5). */
#include "optim/optim.h"

#include <math.h>

static double share(double p, const struct lr_shape *s)
{
	const double least = s->cosine_min_lr_ratio;
	return least + (1 - least) * 0.5 * (1 + cos(M_PI * p));
}

static const char *const keys[] = { "cosine_min_lr_ratio", NULL };

const struct lr_curve lr_cosine = {
	.name = "cosine",
	.help = "half a cosine, down to cosine_min_lr_ratio",
	.keys = keys,
	.share = share,
};
