/* SPDX-License-Identifier: Apache-2.0 */
/* own_dropout.c - in training a share of the numbers is 0, the others are larger; the same ones for
 * every split. */
#include "model/own.h"

#include <math.h>

enum { SHARE }; /* v[] */

static const char *fit(struct own_block *b)
{
	b->out = b->in;
	return 0;
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	*y_p = x;
	if (!r->sl->b.train || !(b->v[SHARE] > 0))
		return 0;
	return op_dropout_apply(r->t, x, (float)b->v[SHARE], r->sl->places, own_noise_key(r), y_p,
				e);
}

const struct own_kind own_dropout = { .name = "dropout",
				      .help = "nn.Dropout",
				      .key = { { "p", 0, 0.99, 0.5, false } },
				      .noise = true,
				      .fit = fit,
				      .forward = forward };
