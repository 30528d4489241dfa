/* SPDX-License-Identifier: Apache-2.0 */
/* op_slice.c - some columns of a matrix where they lie: q, k and v of one product, which nothing
 * copies. Backward, the gradients of all slices are the columns of one gradient. */
#include "tensor/ops.h"

#include "base/err.h"

enum { FROM, WIDTH }; /* i[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	struct tensor *x = a->x[0];
	(void)t;
	*y = (struct tensor){ .dtype = x->dtype,
			      .ndim = 2,
			      .dim = { x->dim[0], a->i[WIDTH] },
			      .whole = x,
			      .from = a->i[FROM],
			      .ld = tensor_ld(x) };
}

static size_t offset(const struct tape_node *n)
{
	return (size_t)n->a.i[FROM] * dtype_size(n->a.x[0]->dtype);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	(void)t;
	(void)e;
	n->y->at.off += offset(n);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dy = n->y->grad;
	if (!x->grad) { /* the gradient lies where another op has put it */
		TRY(tape_tensor(t, x->dtype, x->ndim, x->dim,
				DEV_REF(dy->at.buf, dy->at.off - offset(n)), &x->grad, e));
		x->grad->ld = x->ld;
	}
	if (x->grad->at.buf != dy->at.buf || x->grad->at.off + offset(n) != dy->at.off ||
	    tensor_ld(x->grad) != tensor_ld(dy))
		return err_set(e, ERR_INTERNAL, "the gradient of a slice is not in its place");
	x->grad_written = true;
	return 0;
}

static double none(const struct tape_node *n)
{
	(void)n;
	return 0;
}

const struct op op_slice = { .name = "slice",
			     .in_place = true,
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = none,
			     .bytes = none };

int op_slice_apply(struct tape *t, struct tensor *x, int64_t from, int64_t width,
		   struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_slice, &(struct op_args){ .x = { x }, .i = { from, width } }, y_p,
			  e);
}
