/* SPDX-License-Identifier: Apache-2.0 */
/* op_widen.c - heads that get wider: behind the numbers of each head come those that all heads of a
 * token share (the rotated part of keys in latent attention), or zeros. */
#include "tensor/ops.h"

#include "base/err.h"

enum { FROM, WIDTH, EVERY, WIDE }; /* i[] */

static int64_t shared_width(const struct op_args *a)
{
	return a->x[1] ? tensor_count(a->x[1]) / a->x[1]->dim[0] : 0;
}

static int64_t heads(const struct op_args *a)
{
	return tensor_count(a->x[0]) / a->x[0]->dim[0] / a->i[EVERY];
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 3,
			      .dim = { a->x[0]->dim[0], heads(a), a->i[WIDE] } };
}

static struct dev_ref behind(const struct tensor *x, int64_t numbers)
{
	return DEV_REF(x->at.buf, x->at.off + (size_t)numbers * dtype_size(x->dtype));
}

static int copy(struct tape *t, enum dtype type, struct dev_ref y, int64_t ldy, struct dev_ref x,
		int64_t ldx, int64_t rows, int64_t width, struct err *e)
{
	const union dev_arg a[] = { { .b = y },     { .b = x },   { .i = rows },
				    { .i = width }, { .i = ldy }, { .i = ldx } };
	return dev_launch(t->dev, K_copy_columns, type, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0], *z = n->a.x[1], *y = n->y;
	const int64_t *i = n->a.i, rows = y->dim[0] * y->dim[1], c = shared_width(&n->a);
	if (i[WIDTH] + c < i[WIDE])
		TRY(dev_zero(y->at, tensor_bytes(y), e));
	TRY(copy(t, y->dtype, y->at, i[WIDE], behind(x, i[FROM]), i[EVERY], rows, i[WIDTH], e));
	if (!z)
		return 0;
	const union dev_arg a[] = {
		{ .b = behind(y, i[WIDTH]) }, { .b = z->at }, { .i = y->dim[0] },
		{ .i = y->dim[1] },           { .i = c },     { .i = i[WIDE] }
	};
	return dev_launch(t->dev, K_spread, y->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *z = n->a.x[1], *dy = n->y->grad, *dx;
	const int64_t *i = n->a.i;
	int acc;
	if (x->needs_grad) {
		TRY(tape_grad(t, x, &dx, &acc, e)); /* what is there is another part's */
		TRY(copy(t, x->dtype, behind(dx, i[FROM]), i[EVERY], dy->at, i[WIDE],
			 dy->dim[0] * dy->dim[1], i[WIDTH], e));
	}
	if (!z || !z->needs_grad)
		return 0;
	TRY(tape_grad(t, z, &dx, &acc, e));
	const union dev_arg a[] = {
		{ .b = dx->at },     { .b = behind(dy, i[WIDTH]) }, { .i = dy->dim[0] },
		{ .i = dy->dim[1] }, { .i = shared_width(&n->a) },  { .i = i[WIDE] },
		{ .i = acc }
	};
	return dev_launch(t->dev, K_fold, z->dtype, a, e);
}

static double flops(const struct tape_node *n)
{
	(void)n;
	return 0;
}

static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_widen = { .name = "widen",
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = bytes };

int op_widen_apply(struct tape *t, struct tensor *x, int64_t every, int64_t from, int64_t width,
		   struct tensor *z, int64_t wide, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_widen,
			  &(struct op_args){ .x = { x, z }, .i = { from, width, every, wide } },
			  y_p, e);
}
