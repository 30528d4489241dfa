/* SPDX-License-Identifier: Apache-2.0 */
/* own_loss.c - what a model of one's own is trained for. A loss is a sum over rows that have a
 * target; the mean over them is what is reported. The last of its settings is the number of
 * classes, 0 where targets are floats. */
#include "model/own.h"

enum { CLASSES = OWN_NUMBERS - 1 }; /* v[] */

static float scale_of(const struct own_run *r) { return r->sl->b.scale > 0 ? r->sl->b.scale : 1; }

static const char *fit_classes(struct own_block *b)
{
	b->out = (struct own_shape){ .ndim = 1, .dim = { 1 } };
	b->v[CLASSES] = b->in.dim[0];
	return b->in.ndim == 1 ? NULL : "(classes)";
}

static int cross_entropy(struct own_run *r, const struct own_block *b, struct tensor *x,
			 struct tensor **y_p, struct err *e)
{
	(void)b;
	return op_xent_apply(r->t, x, r->sl->tlabels, r->sl->thits, scale_of(r), y_p, e);
}

const struct own_kind own_cross_entropy = { .name = "cross_entropy",
					    .help = "of a row and the number of its class (-100: "
						    "none): nn.CrossEntropyLoss",
					    .loss = true,
					    .fit = fit_classes,
					    .forward = cross_entropy };

static const char *fit_same(struct own_block *b)
{
	b->out = b->in;
	b->v[CLASSES] = 0;
	return 0;
}

static int mse(struct own_run *r, const struct own_block *b, struct tensor *x, struct tensor **y_p,
	       struct err *e)
{
	(void)b;
	return op_mse_apply(r->t, x, r->sl->tlabels, scale_of(r), y_p, e);
}

const struct own_kind own_mse = { .name = "mse",
				  .help = "the mean square of a row less its target: nn.MSELoss",
				  .loss = true,
				  .fit = fit_same,
				  .forward = mse };
