/* SPDX-License-Identifier: Apache-2.0 */
/* op_conv1d.c - causal convolution of each channel by itself; see conv1d_fwd in kernel.def. */
#include "tensor/ops.h"

#include "base/err.h"

enum { POS, KEPT }; /* r[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], a->x[0]->dim[1] } };
}

static int64_t size_of(const struct tape_node *n)
{
	return param_count(n->a.p[0]) / n->a.x[0]->dim[1];
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const union dev_arg a[] = { { .b = n->y->at },          { .b = x->at },
				    { .b = n->a.p[0]->w.data }, { .b = n->a.r[POS] },
				    { .b = n->a.r[KEPT] },      { .i = x->dim[0] },
				    { .i = x->dim[1] },         { .i = size_of(n) } };
	return dev_launch(t->dev, K_conv1d_fwd, x->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	struct param *w = n->a.p[0];
	int acc;
	TRY(tape_grad(t, x, &dx, &acc, e));
	const union dev_arg a[] = {
		{ .b = dx->at },         { .b = w->trainable ? DEV_REF(w->grad, 0) : DEV_NONE },
		{ .b = n->y->grad->at }, { .b = x->at },
		{ .b = w->w.data },      { .b = n->a.r[POS] },
		{ .i = x->dim[0] },      { .i = x->dim[1] },
		{ .i = size_of(n) },     { .i = acc }
	};
	return dev_launch(t->dev, K_conv1d_bwd, x->dtype, a, e);
}

static double flops(const struct tape_node *n)
{
	return 2.0 * (double)tensor_count(n->y) * (double)size_of(n);
}
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_conv1d = { .name = "conv1d",
			      .shape = shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = bytes };

int op_conv1d_apply(struct tape *t, struct tensor *x, struct param *w, struct dev_ref pos,
		    struct dev_ref kept, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_conv1d,
			  &(struct op_args){ .x = { x }, .p = { w }, .r = { pos, kept } }, y_p, e);
}
