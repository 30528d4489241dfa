/* SPDX-License-Identifier: Apache-2.0 */
/* own_shape.c - the same numbers as rows of another shape. */
#include "model/own.h"

#include <math.h>

static const char *fit_flat(struct own_block *b)
{
	b->out = (struct own_shape){ .ndim = 1, .dim = { (int32_t)own_count(&b->in) } };
	return 0;
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	(void)r;
	(void)b;
	(void)e;
	*y_p = x;
	return 0;
}

const struct own_kind own_flatten = { .name = "flatten",
				      .help = "the row as one dimension: nn.Flatten",
				      .fit = fit_flat,
				      .forward = forward };

static const char *fit_other(struct own_block *b)
{
	b->out = (struct own_shape){ 0 };
	for (int i = 0; i < OWN_DIMS && b->v[i] > 0; i++)
		b->out.dim[b->out.ndim++] = (int32_t)b->v[i];
	return own_count(&b->out) == own_count(&b->in) ? NULL : "with as many numbers as its own";
}

const struct own_kind own_reshape = { .name = "reshape",
				      .help = "the row in another shape: nn.Unflatten",
				      .key = { { "a", 1, 1 << 24, NAN, true },
					       { "b", 0, 1 << 24, 0, true },
					       { "c", 0, 1 << 24, 0, true } },
				      .fit = fit_other,
				      .forward = forward };
