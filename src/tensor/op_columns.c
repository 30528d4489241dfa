/* SPDX-License-Identifier: Apache-2.0 */
/* op_columns.c - some columns of a matrix as a matrix of their own: q, k and v of one product; or
 * some of each head, of heads that have several parts. */
#include "tensor/ops.h"

#include "base/err.h"

enum { FROM, WIDTH, EVERY, ALONE }; /* i[]; ALONE: no op takes the others */

/* Rows of EVERY numbers in x. */
static int64_t rows_of(const struct op_args *a) { return tensor_count(a->x[0]) / a->i[EVERY]; }

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0],
				       tensor_cols(a->x[0]) / a->i[EVERY] * a->i[WIDTH] } };
}

static int copy(struct tape *t, enum dtype type, struct dev_ref y, int64_t ldy, struct dev_ref x,
		int64_t ldx, int64_t rows, int64_t width, struct err *e)
{
	const union dev_arg a[] = { { .b = y },     { .b = x },   { .i = rows },
				    { .i = width }, { .i = ldy }, { .i = ldx } };
	return dev_launch(t->dev, K_copy_columns, type, a, e);
}

static struct dev_ref part_of(const struct tape_node *n, const struct tensor *x)
{
	return DEV_REF(x->at.buf, x->at.off + (size_t)n->a.i[FROM] * dtype_size(x->dtype));
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	return copy(t, x->dtype, n->y->at, n->a.i[WIDTH], part_of(n, x), n->a.i[EVERY],
		    rows_of(&n->a), n->a.i[WIDTH], e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	int acc; /* what is there is another part's */
	TRY(tape_grad(t, x, &dx, &acc, e));
	if (n->a.i[ALONE])
		TRY(dev_zero(dx->at, tensor_bytes(dx), e));
	return copy(t, x->dtype, part_of(n, dx), n->a.i[EVERY], n->y->grad->at, n->a.i[WIDTH],
		    rows_of(&n->a), n->a.i[WIDTH], e);
}

static double flops(const struct tape_node *n)
{
	(void)n;
	return 0;
}

static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_columns = { .name = "columns",
			       .shape = shape,
			       .forward = forward,
			       .backward = backward,
			       .flops = flops,
			       .bytes = bytes };

int op_columns_apply(struct tape *t, struct tensor *x, int64_t every, int64_t from, int64_t width,
		     struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_columns,
			  &(struct op_args){ .x = { x }, .i = { from, width, every } }, y_p, e);
}

int op_cut_apply(struct tape *t, struct tensor *x, int64_t every, int64_t width,
		 struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_columns,
			  &(struct op_args){ .x = { x }, .i = { 0, width, every, 1 } }, y_p, e);
}
