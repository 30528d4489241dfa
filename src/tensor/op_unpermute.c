/* SPDX-License-Identifier: Apache-2.0 */
/* op_unpermute.c - from the rows of the experts back to tokens: the weighted sum over the K rows of
 * each, and the residual. */
#include "tensor/routing.h"

#include "base/err.h"

enum { ROWS, WEIGHT, RESIDUAL }; /* x[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct routing *r = a->of;
	(void)t;
	*y = (struct tensor){ .dtype = a->x[ROWS]->dtype,
			      .ndim = 2,
			      .dim = { r->n, a->x[ROWS]->dim[1] } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct routing *r = n->a.of;
	const struct tensor *x = n->a.x[ROWS], *residual = n->a.x[RESIDUAL];
	if (residual)
		TRY(dev_copy(n->y->at, residual->at, tensor_bytes(n->y), e));
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = x->at },
				    { .b = n->a.x[WEIGHT]->at },
				    { .b = r->place },
				    { .i = r->n },
				    { .i = r->k },
				    { .i = x->dim[1] },
				    { .i = residual != NULL } };
	return dev_launch(t->dev, K_combine_fwd, x->dtype, a, e);
}

/* The gradient of x, or memory for what nobody needs. */
static int grad_of(struct tape *t, struct tensor *x, struct dev_ref *dx_p, struct err *e)
{
	struct tensor *dx;
	int acc = 0;
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	else
		TRY(tape_new(t, t->scratch, x->dtype, x->ndim, x->dim, &dx, e));
	if (acc)
		return err_set(e, ERR_INTERNAL, "unpermute: an input that is used twice");
	*dx_p = dx->at;
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct routing *r = n->a.of;
	struct tensor *x = n->a.x[ROWS], *w = n->a.x[WEIGHT], *residual = n->a.x[RESIDUAL];
	struct dev_ref dx, dw;
	TRY(grad_of(t, x, &dx, e));
	TRY(grad_of(t, w, &dw, e));
	const union dev_arg a[] = { { .b = dx },    { .b = dw },    { .b = n->y->grad->at },
				    { .b = x->at }, { .b = w->at }, { .b = r->place },
				    { .i = r->n },  { .i = r->k },  { .i = x->dim[1] } };
	TRY(dev_launch(t->dev, K_combine_bwd, x->dtype, a, e));
	/* last: dy's memory becomes the residual's gradient */
	return residual && residual->needs_grad ? tape_pass(t, residual, n->y->grad, e) : 0;
}

static double flops(const struct tape_node *n) { return 2.0 * (double)tensor_count(n->a.x[ROWS]); }

static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->a.x[ROWS]) + (double)tensor_bytes(n->y);
}

const struct op op_unpermute = { .name = "unpermute",
				 .shape = shape,
				 .forward = forward,
				 .backward = backward,
				 .flops = flops,
				 .bytes = bytes };

int op_unpermute_apply(struct tape *t, struct tensor *x, struct tensor *weight,
		       struct tensor *residual, const struct routing *r, struct tensor **y_p,
		       struct err *e)
{
	return tape_apply(t, &op_unpermute,
			  &(struct op_args){ .x = { x, weight, residual }, .of = r }, y_p, e);
}
