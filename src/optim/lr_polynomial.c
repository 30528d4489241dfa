/* SPDX-License-Identifier: Apache-2.0 */
/* lr_polynomial.c - r + (1 - r) (1 - p)^power, r being lr_min_ratio. */
#include "optim/optim.h"

#include <math.h>

static double share(double p, const struct lr_shape *s)
{
	return s->min_lr_ratio + (1 - s->min_lr_ratio) * pow(1 - p, s->power);
}

static const char *const keys[] = { "lr_min_ratio", "lr_power", NULL };

const struct lr_curve lr_polynomial = {
	.name = "polynomial",
	.help = "(1 - p) to the power of lr_power, down to lr_min_ratio",
	.keys = keys,
	.share = share,
};
