/* SPDX-License-Identifier: Apache-2.0 */
/* lr_constant.c - the full rate in every step. */
#include "optim/optim.h"

static double share(double p, double least)
{
	(void)p, (void)least;
	return 1;
}

const struct lr_curve lr_constant = {
	.name = "constant",
	.help = "the full rate until the end",
	.share = share,
};
