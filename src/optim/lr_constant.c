/* SPDX-License-Identifier: Apache-2.0 */
/* lr_constant.c - the full rate in every step. */
#include "optim/optim.h"

static double share(double p, const struct lr_shape *s)
{
	(void)p, (void)s;
	return 1;
}

static const char *const aliases[] = { "constant_with_warmup", NULL };

const struct lr_curve lr_constant = {
	.name = "constant",
	.help = "the full rate until the end",
	.aliases = aliases,
	.share = share,
};
