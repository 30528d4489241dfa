/* SPDX-License-Identifier: Apache-2.0 */
/* own_residual.c - y = x + (what the blocks inside make of x). */
#include "model/own.h"

#include "base/err.h"

static const char *fit(struct own_block *b)
{
	b->out = b->in;
	return 0;
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	const int at = r->at;
	struct tensor *y;
	TRY(own_run_blocks(r, at + 1, at + 1 + b->inside, x, &y, e));
	own_view(x, &b->in);
	own_view(y, &b->in);
	return op_add_apply(r->t, y, 1, x, y_p, e);
}

const struct own_kind own_residual = { .name = "residual",
				       .help = "x + { blocks }(x)",
				       .holds = true,
				       .fit = fit,
				       .forward = forward };
