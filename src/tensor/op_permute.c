/* SPDX-License-Identifier: Apache-2.0 */
/* op_permute.c - the rows of x in the order of the experts that they go to, each K times. */
#include "tensor/routing.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct routing *r = a->of;
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { r->n * r->k, a->x[0]->dim[1] } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct routing *r = n->a.of;
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->a.x[0]->at },
				    { .b = r->source },
				    { .i = n->y->dim[0] },
				    { .i = n->y->dim[1] } };
	return dev_launch(t->dev, K_gather_rows, n->y->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct routing *r = n->a.of;
	struct tensor *x = n->a.x[0], *dx;
	int acc;
	TRY(tape_grad(t, x, &dx, &acc, e));
	const union dev_arg a[] = { { .b = dx->at },    { .b = n->y->grad->at },
				    { .b = DEV_NONE },  { .b = r->place },
				    { .i = r->n },      { .i = r->k },
				    { .i = x->dim[1] }, { .i = acc } };
	return dev_launch(t->dev, K_combine_fwd, x->dtype, a, e);
}

static double flops(const struct tape_node *n)
{
	(void)n;
	return 0;
}

static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_permute = { .name = "permute",
			       .shape = shape,
			       .forward = forward,
			       .backward = backward,
			       .flops = flops,
			       .bytes = bytes };

int op_permute_apply(struct tape *t, struct tensor *x, const struct routing *r, struct tensor **y_p,
		     struct err *e)
{
	return tape_apply(t, &op_permute, &(struct op_args){ .x = { x }, .of = r }, y_p, e);
}
