/* SPDX-License-Identifier: Apache-2.0 */
/* op_head_glu.c - y = sigmoid(gate) * up, one gate for each head. The gradient of gate takes its
 * place; up stays, as the op that made it may read it (attention does). */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[1]->dtype,
			      .ndim = 2,
			      .dim = { a->x[1]->dim[0], tensor_count(a->x[1]) / a->x[1]->dim[0] } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *gate = n->a.x[0], *up = n->a.x[1];
	const int64_t rows = tensor_count(gate);
	if (tensor_ld(gate) != tensor_cols(gate) || tensor_ld(up) != tensor_cols(up) ||
	    tensor_count(up) % rows)
		return err_set(e, ERR_INTERNAL, "head_glu: an input has gaps or another shape");
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = gate->at },
				    { .b = up->at },
				    { .i = rows },
				    { .i = tensor_count(up) / rows } };
	return dev_launch(t->dev, K_head_glu_fwd, n->y->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *gate = n->a.x[0], *up = n->a.x[1], *dgate, *dup;
	const int64_t rows = tensor_count(gate);
	int acc;
	TRY(tape_grad(t, up, &dup, &acc, e));
	if (acc)
		return err_set(e, ERR_INTERNAL, "head_glu: an input that is used twice");
	const union dev_arg a[] = { { .b = gate->at },
				    { .b = dup->at },
				    { .b = n->y->grad->at },
				    { .b = gate->at },
				    { .b = up->at },
				    { .i = rows },
				    { .i = tensor_count(up) / rows } };
	TRY(dev_launch(t->dev, K_head_glu_bwd, n->y->dtype, a, e));
	TRY(tape_tensor(t, gate->dtype, 2, gate->dim, gate->at, &dgate, e));
	return tape_pass(t, gate, dgate, e);
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_head_glu = { .name = "head_glu",
				.shape = shape,
				.forward = forward,
				.backward = backward,
				.flops = flops,
				.bytes = bytes };

int op_head_glu_apply(struct tape *t, struct tensor *gate, struct tensor *up, struct tensor **y_p,
		      struct err *e)
{
	return tape_apply(t, &op_head_glu, &(struct op_args){ .x = { gate, up } }, y_p, e);
}
