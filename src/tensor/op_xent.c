/* SPDX-License-Identifier: Apache-2.0 */
/* op_xent.c - cross-entropy over the rows of logits that lie in memory whole: for few classes. For
 * the vocabulary of a language model op_loss.c never holds them. On a recording tape the gradient
 * of the sum of losses, times `scale`, is computed in the forward. */
#include "tensor/ops.h"

#include "base/err.h"

enum { LABELS, HITS }; /* r[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = DT_F32, .ndim = 1, .dim = { tensor_rows(a->x[0]) } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const int64_t rows = tensor_rows(x), v = tensor_cols(x);
	struct dmem_mark k = dmem_mark(t->scratch);
	struct dev_ref logits = x->at;
	if (n->y->needs_grad)
		TRY(tape_new(t, t->mem, x->dtype, x->ndim, x->dim, &n->saved[0], e));
	if (x->dtype != DT_F32) {
		TRY(dmem_take(t->scratch, (size_t)(rows * v) * 4, &logits, e));
		const union dev_arg c[] = { { .b = logits },
					    { .b = x->at },
					    { .i = rows * v },
					    { .i = DT_F32 },
					    { .i = x->dtype } };
		TRY(dev_launch(t->dev, K_cast, DT_F32, c, e));
	}
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->saved[0] ? n->saved[0]->at : DEV_NONE },
				    { .b = logits },
				    { .b = n->a.r[LABELS] },
				    { .b = n->a.r[HITS] },
				    { .b = DEV_NONE },
				    { .i = rows },
				    { .i = v },
				    { .i = v },
				    { .i = v },
				    { .f = n->a.f[0] },
				    { .f = 0 } };
	TRY(dev_launch(t->dev, K_xent, x->dtype, a, e));
	dmem_back(t->scratch, k);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return n->saved[0] ? tape_pass(t, n->a.x[0], n->saved[0], e) : 0;
}

static double flops(const struct tape_node *n) { return 8.0 * (double)tensor_count(n->a.x[0]); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->a.x[0]); }

const struct op op_xent = { .name = "xent",
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_xent_apply(struct tape *t, struct tensor *x, struct dev_ref labels, struct dev_ref hits,
		  float scale, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_xent,
			  &(struct op_args){ .x = { x }, .r = { labels, hits }, .f = { scale } },
			  y_p, e);
}
