/* SPDX-License-Identifier: Apache-2.0 */
/* lr_cosine_with_restarts.c - (1 + cos(pi (n p mod 1))) / 2, n being lr_num_cycles (Loshchilov
 * & Hutter 2017, SGDR), as transformers' cosine with hard restarts. */
#include "optim/optim.h"

#include <math.h>

static double share(double p, const struct lr_shape *s)
{
	return 0.5 * (1 + cos(M_PI * fmod(s->num_cycles * p, 1)));
}

static const char *const keys[] = { "lr_num_cycles", NULL };

const struct lr_curve lr_cosine_with_restarts = {
	.name = "cosine_with_restarts",
	.help = "lr_num_cycles halves of a cosine, each from the full rate down to almost nothing",
	.keys = keys,
	.share = share,
};
