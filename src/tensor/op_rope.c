/* SPDX-License-Identifier: Apache-2.0 */
/* op_rope.c - rotary position embedding in place; backward turns the gradient the other way round,
 * also in place. */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	const struct tensor *x = a->x[0];
	*y = (struct tensor){ .dtype = x->dtype,
			      .ndim = 3,
			      .dim = { x->dim[0], x->dim[1], x->dim[2] },
			      .whole = x->whole,
			      .from = x->from,
			      .ld = x->ld };
}

static int launch_rope(struct tape *t, const struct tape_node *n, struct dev_ref x, int dir,
		       struct err *e)
{
	const struct tensor *y = n->y;
	x.off += (size_t)n->a.i[2] * dtype_size(y->dtype);
	const union dev_arg a[] = {
		{ .b = x },         { .b = n->a.r[0] }, { .b = n->a.r[1] },    { .i = y->dim[0] },
		{ .i = y->dim[1] }, { .i = y->dim[2] }, { .i = tensor_ld(y) }, { .i = dir },
		{ .f = n->a.f[0] }, { .i = n->a.i[0] }, { .i = n->a.i[1] },    { .b = n->a.r[2] }
	};
	return dev_launch(t->dev, K_rope, y->dtype, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	return launch_rope(t, n, n->y->at, 1, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	TRY(launch_rope(t, n, n->y->grad->at, -1, e));
	return tape_pass(t, n->a.x[0], n->y->grad, e);
}

static double flops(const struct tape_node *n) { return 3.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_rope = { .name = "rope",
			    .in_place = true,
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_rope_apply(struct tape *t, struct tensor *x, const struct rope *r, struct tensor **y_p,
		  struct err *e)
{
	return tape_apply(t, &op_rope,
			  &(struct op_args){ .x = { x },
					     .r = { r->pos, r->freq, r->table },
					     .i = { r->rot, r->near, r->from },
					     .f = { r->scale } },
			  y_p, e);
}
