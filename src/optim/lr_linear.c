/* SPDX-License-Identifier: Apache-2.0 */
/* lr_linear.c - 1 - p. */
#include "optim/optim.h"

static double share(double p, const struct lr_shape *s)
{
	(void)s;
	return 1 - p;
}

const struct lr_curve lr_linear = {
	.name = "linear",
	.help = "a straight line down to almost nothing",
	.share = share,
	.rule1_more = 1,
};
