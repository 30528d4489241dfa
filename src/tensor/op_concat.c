/* SPDX-License-Identifier: Apache-2.0 */
/* op_concat.c - y (N, A+B) = a row of x (N,A), and behind it the same row of z (N,B). */
#include "tensor/ops.h"

#include "base/err.h"

static int64_t width(const struct tensor *x) { return tensor_count(x) / x->dim[0]; }

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], width(a->x[0]) + width(a->x[1]) } };
}

static int copy(struct tape *t, enum dtype type, struct dev_ref y, int64_t ldy, struct dev_ref x,
		int64_t ldx, int64_t rows, int64_t columns, struct err *e)
{
	const union dev_arg a[] = { { .b = y },       { .b = x },   { .i = rows },
				    { .i = columns }, { .i = ldy }, { .i = ldx } };
	return dev_launch(t->dev, K_copy_columns, type, a, e);
}

/* Where part i of each row of `whole` begins. */
static struct dev_ref part(const struct tape_node *n, const struct tensor *whole, int i)
{
	const int64_t from = i ? width(n->a.x[0]) : 0;
	return DEV_REF(whole->at.buf, whole->at.off + (size_t)from * dtype_size(whole->dtype));
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	for (int i = 0; i < 2; i++) {
		const struct tensor *x = n->a.x[i];
		TRY(copy(t, x->dtype, part(n, n->y, i), width(n->y), x->at, width(x), x->dim[0],
			 width(x), e));
	}
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	for (int i = 0; i < 2; i++) {
		struct tensor *x = n->a.x[i], *dx;
		struct dev_ref to;
		int acc;
		if (!x->needs_grad)
			continue;
		TRY(tape_grad(t, x, &dx, &acc, e));
		const struct dmem_mark k = dmem_mark(t->scratch);
		to = dx->at;
		if (acc)
			TRY(dmem_take(t->scratch, tensor_bytes(x), &to, e));
		TRY(copy(t, x->dtype, to, width(x), part(n, n->y->grad, i), width(n->y), x->dim[0],
			 width(x), e));
		const union dev_arg a[] = { { .b = dx->at },
					    { .b = to },
					    { .i = tensor_count(x) },
					    { .f = 1 },
					    { .f = 1 } };
		if (acc)
			TRY(dev_launch(t->dev, K_axpby, x->dtype, a, e));
		dmem_back(t->scratch, k);
	}
	return 0;
}

static double flops(const struct tape_node *n)
{
	(void)n;
	return 0;
}

static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_concat = { .name = "concat",
			      .shape = shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = bytes };

int op_concat_apply(struct tape *t, struct tensor *x, struct tensor *z, struct tensor **y_p,
		    struct err *e)
{
	return tape_apply(t, &op_concat, &(struct op_args){ .x = { x, z } }, y_p, e);
}
