/* SPDX-License-Identifier: Apache-2.0 */
/* op_pool.c - the largest number, or the mean, of each window of an image. Of the largest its place
 * is saved. */
#include "tensor/ops.h"

#include "base/err.h"

enum { K, STRIDE, MEAN }; /* i[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct tensor *x = a->x[0];
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 4,
			      .dim = { x->dim[0], x->dim[1],
				       (x->dim[2] - a->i[K]) / a->i[STRIDE] + 1,
				       (x->dim[3] - a->i[K]) / a->i[STRIDE] + 1 } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const int64_t count = tensor_count(n->y);
	if (n->y->needs_grad && !n->a.i[MEAN])
		TRY(tape_new(t, t->mem, DT_I32, 1, &count, &n->saved[0], e));
	const union dev_arg a[] = {
		{ .b = n->y->at },    { .b = n->saved[0] ? n->saved[0]->at : DEV_NONE },
		{ .b = x->at },       { .i = x->dim[0] * x->dim[1] },
		{ .i = x->dim[2] },   { .i = x->dim[3] },
		{ .i = n->a.i[K] },   { .i = n->a.i[STRIDE] },
		{ .i = n->a.i[MEAN] }
	};
	return dev_launch(t->dev, K_pool_fwd, t->act, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	int acc;
	if (!x->needs_grad)
		return 0;
	TRY(tape_grad(t, x, &dx, &acc, e));
	const union dev_arg a[] = { { .b = dx->at },
				    { .b = n->y->grad->at },
				    { .b = n->saved[0] ? n->saved[0]->at : DEV_NONE },
				    { .i = x->dim[0] * x->dim[1] },
				    { .i = x->dim[2] },
				    { .i = x->dim[3] },
				    { .i = n->a.i[K] },
				    { .i = n->a.i[STRIDE] },
				    { .i = n->a.i[MEAN] },
				    { .i = acc } };
	return dev_launch(t->dev, K_pool_bwd, t->act, a, e);
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->a.x[0]); }
static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[0]);
}

const struct op op_pool = { .name = "pool",
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_pool_apply(struct tape *t, struct tensor *x, int64_t k, int64_t stride, bool mean,
		  struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_pool, &(struct op_args){ .x = { x }, .i = { k, stride, mean } },
			  y_p, e);
}
