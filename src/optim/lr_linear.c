/* SPDX-License-Identifier: Apache-2.0 */
/* lr_linear.c - (steps - s + 1) / (steps + 1): never zero on a step that is taken. */
#include "optim/optim.h"

static double share(double s, double steps, double least)
{
	(void)least;
	return (steps - s + 1) / (steps + 1);
}

const struct lr_curve lr_linear = {
	.name = "linear",
	.help = "a straight line down to almost nothing",
	.share = share,
};
