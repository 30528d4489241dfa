/* SPDX-License-Identifier: Apache-2.0 */
/* gated.c - see gated.h. */
#include "tensor/gated.h"

#include "base/err.h"

void gated_shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], a->x[0]->dim[1] } };
}

/* Rows of gate and up, and how far they are apart; what lies without gaps is one row. */
static int places(const struct tape_node *n, int64_t *width_p, int64_t *ld_p, struct err *e)
{
	const struct tensor *gate = n->a.x[0], *up = n->a.x[1];
	if (tensor_ld(gate) != tensor_ld(up))
		return err_set(e, ERR_INTERNAL, "%s: gate and up lie differently", n->op->name);
	const bool gaps = tensor_ld(gate) != tensor_cols(gate);
	*width_p = gaps ? tensor_cols(gate) : tensor_count(gate);
	*ld_p = gaps ? tensor_ld(gate) : *width_p;
	return 0;
}

int gated_forward(struct tape *t, struct tape_node *n, enum dev_kernel k, struct err *e)
{
	int64_t width, ld;
	TRY(places(n, &width, &ld, e));
	const union dev_arg a[] = { { .b = n->y->at },      { .b = n->a.x[0]->at },
				    { .b = n->a.x[1]->at }, { .i = tensor_count(n->y) },
				    { .i = width },         { .i = ld },
				    { .f = n->a.f[0] },     { .f = n->a.f[1] } };
	return dev_launch(t->dev, k, n->y->dtype, a, e);
}

int gated_backward(struct tape *t, struct tape_node *n, enum dev_kernel k, struct err *e)
{
	struct tensor *gate = n->a.x[0], *up = n->a.x[1];
	int64_t width, ld;
	TRY(places(n, &width, &ld, e));
	const union dev_arg a[] = { { .b = gate->at }, { .b = up->at }, { .b = n->y->grad->at },
				    { .b = gate->at }, { .b = up->at }, { .i = tensor_count(n->y) },
				    { .i = width },    { .i = ld },     { .f = n->a.f[0] },
				    { .f = n->a.f[1] } };
	TRY(dev_launch(t->dev, k, n->y->dtype, a, e));
	struct tensor *in[2] = { gate, up };
	for (int i = 0; i < 2; i++) {
		struct tensor *dx;
		TRY(tape_tensor(t, in[i]->dtype, 2, in[i]->dim, in[i]->at, &dx, e));
		dx->ld = in[i]->ld;
		TRY(tape_pass(t, in[i], dx, e));
	}
	return 0;
}

double gated_bytes(const struct tape_node *n) { return 3.0 * (double)tensor_bytes(n->y); }
