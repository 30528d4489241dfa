/* SPDX-License-Identifier: Apache-2.0 */
/* op_route_scale.c - the weights of a token's experts, each times a number of that expert. To the
 * kernels of permute and unpermute a number is a row of one column. */
#include "tensor/routing.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = DT_F32, .ndim = 2 };
	y->dim[0] = a->x[0]->dim[0];
	y->dim[1] = a->x[0]->dim[1];
}

/* y (N,K) = x (N,K) times the number of each one's expert. */
static int multiply(struct tape *t, const struct tape_node *n, struct dev_ref y, struct dev_ref x,
		    int acc, struct err *e)
{
	const struct routing *r = n->a.of;
	const union dev_arg a[] = { { .b = y },           { .b = n->a.p[0]->w.data },
				    { .b = x },           { .b = r->chosen },
				    { .i = r->n * r->k }, { .i = 1 },
				    { .i = 1 },           { .i = acc } };
	return dev_launch(t->dev, K_combine_fwd, DT_F32, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return multiply(t, n, n->y->at, n->a.x[0]->at, 0, e);
}

/* The gradient of the numbers: x times dy, in the order of the experts, summed over the rows of
 * each. */
static int sum(struct tape *t, const struct tape_node *n, struct err *e)
{
	const struct routing *r = n->a.of;
	const struct tensor *x = n->a.x[0];
	const struct param *p = n->a.p[0];
	struct dev_ref rows, unused;
	TRY(dmem_take(t->scratch, tensor_bytes(x), &rows, e));
	TRY(dmem_take(t->scratch, tensor_bytes(x), &unused, e));
	const union dev_arg a[] = { { .b = rows },        { .b = unused }, { .b = n->y->grad->at },
				    { .b = x->at },       { .b = x->at },  { .b = r->place },
				    { .i = r->n * r->k }, { .i = 1 },      { .i = 1 } };
	TRY(dev_launch(t->dev, K_combine_bwd, DT_F32, a, e));
	for (int64_t i = 0; i < r->experts; i++) {
		const int64_t first = r->first[i];
		const union dev_arg of[] = { { .b = DEV_REF(p->grad, (size_t)i * 4) },
					     { .b = DEV_REF(rows.buf,
							    rows.off + (size_t)first * 4) },
					     { .i = r->first[i + 1] - first },
					     { .i = 1 } };
		if (r->first[i + 1] > first)
			TRY(dev_launch(t->dev, K_colsum, DT_F32, of, e));
	}
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	int acc;
	if (n->a.p[0]->trainable) {
		struct dmem_mark k = dmem_mark(t->scratch);
		TRY(sum(t, n, e));
		dmem_back(t->scratch, k);
	}
	if (!x->needs_grad)
		return 0;
	TRY(tape_grad(t, x, &dx, &acc, e));
	return multiply(t, n, dx->at, n->y->grad->at, acc, e);
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->y); }

const struct op op_route_scale = { .name = "route_scale",
				   .shape = shape,
				   .forward = forward,
				   .backward = backward,
				   .flops = flops,
				   .bytes = bytes };

int op_route_scale_apply(struct tape *t, struct tensor *weight, struct param *number,
			 const struct routing *r, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_route_scale,
			  &(struct op_args){ .x = { weight }, .p = { number }, .of = r }, y_p, e);
}
