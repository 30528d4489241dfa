/* SPDX-License-Identifier: Apache-2.0 */
/* own_concat.c - y = x, and behind it what the blocks inside make of x, along the first dimension
 * (the channels of an image), as DenseNet has it. */
#include "model/own.h"

#include "base/err.h"

/* `out` is set when the blocks inside are known (own_text.c). */
static const char *fit(struct own_block *b)
{
	b->out = b->in;
	return 0;
}

static const char *join(struct own_block *b, const struct own_shape *inside)
{
	bool same = inside->ndim == b->in.ndim;
	for (int i = 1; i < b->in.ndim; i++)
		same = same && inside->dim[i] == b->in.dim[i];
	b->out = b->in;
	b->out.dim[0] += inside->dim[0];
	return same ? NULL : "like its input, but for the first dimension";
}

static int forward(struct own_run *r, const struct own_block *b, struct tensor *x,
		   struct tensor **y_p, struct err *e)
{
	const int at = r->at;
	struct tensor *y;
	TRY(own_run_blocks(r, at + 1, at + 1 + b->inside, x, &y, e));
	return op_concat_apply(r->t, x, y, y_p, e);
}

const struct own_kind own_concat = { .name = "concat",
				     .help = "x, and behind it { blocks }(x), along the first "
					     "dimension: torch.cat",
				     .holds = true,
				     .fit = fit,
				     .join = join,
				     .forward = forward };
