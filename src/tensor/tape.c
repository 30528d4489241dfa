/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c - see tape.h. */
#include "tensor/tape.h"

#include "base/err.h"

#include <string.h>

int tape_tensor(struct tape *t, enum dtype dtype, int ndim, const int64_t *dim, struct dev_ref at,
		struct tensor **y_p, struct err *e)
{
	struct tensor *y = arena_alloc(t->host, sizeof *y);
	if (!y)
		return err_nomem(e, sizeof *y, "a tensor");
	y->dtype = dtype;
	y->ndim = ndim;
	memcpy(y->dim, dim, (size_t)ndim * sizeof *dim);
	y->at = at;
	*y_p = y;
	return 0;
}

int tape_new(struct tape *t, struct dmem *m, enum dtype dtype, int ndim, const int64_t *dim,
	     struct tensor **y_p, struct err *e)
{
	struct tensor *y = NULL;
	TRY(tape_tensor(t, dtype, ndim, dim, DEV_NONE, &y, e));
	TRY(dmem_take(m, tensor_bytes(y), &y->at, e));
	*y_p = y;
	return 0;
}

int tape_apply(struct tape *t, const struct op *op, const struct op_args *a, struct tensor **y_p,
	       struct err *e)
{
	struct tape_node *n = arena_alloc(t->host, sizeof *n);
	struct tensor *y = arena_alloc(t->host, sizeof *y);
	if (!n || !y)
		return err_nomem(e, sizeof *n, "a tape node");
	n->op = op;
	n->a = *a;
	n->y = y;
	op->shape(t, a, y);
	y->needs_grad = t->record && a->trains;
	for (size_t i = 0; i < sizeof a->x / sizeof *a->x; i++)
		y->needs_grad |= t->record && a->x[i] && a->x[i]->needs_grad;
	for (size_t i = 0; i < sizeof a->p / sizeof *a->p; i++)
		y->needs_grad |= t->record && a->p[i] && a->p[i]->trainable;
	if (op->in_place)
		y->at = a->x[0]->at;
	else
		TRY(dmem_take(t->out ? t->out : t->mem, tensor_bytes(y), &y->at, e));
	int rc = op->forward(t, n, e);
	if (rc < 0)
		return err_prefix(e, "op %s", op->name);
	if (y->needs_grad) {
		n->prev = t->last;
		t->last = n;
	}
	*y_p = y;
	return 0;
}

int tape_backward(struct tape *t, struct err *e)
{
	for (struct tape_node *n = t->last; n; n = n->prev) {
		if (!n->y->grad)
			continue; /* no trained parameter depends on it */
		int rc = n->op->backward(t, n, e);
		if (rc < 0)
			return err_prefix(e, "op %s backward", n->op->name);
	}
	return 0;
}

void tape_reset(struct tape *t) { t->last = NULL; }

int tape_seed(struct tape *t, struct tensor *y, struct dev_ref at, struct err *e)
{
	TRY(tape_tensor(t, y->dtype, y->ndim, y->dim, at, &y->grad, e));
	y->grad_written = true;
	return 0;
}

/* Makes the gradient's tensor; for columns of another tensor it is the same columns of its
 * gradient. */
static int make_grad(struct tape *t, struct tensor *x, struct err *e)
{
	struct tensor *w = x->whole;
	if (x->grad)
		return 0;
	if (!w)
		return tape_new(t, t->scratch, x->dtype, x->ndim, x->dim, &x->grad, e);
	TRY(make_grad(t, w, e));
	struct dev_ref at = w->grad->at;
	at.off += (size_t)x->from * dtype_size(x->dtype);
	TRY(tape_tensor(t, x->dtype, x->ndim, x->dim, at, &x->grad, e));
	x->grad->ld = x->ld;
	return 0;
}

int tape_grad(struct tape *t, struct tensor *x, struct tensor **dx_p, int *acc_p, struct err *e)
{
	TRY(make_grad(t, x, e));
	*acc_p = x->grad_written;
	x->grad_written = true;
	*dx_p = x->grad;
	return 0;
}

int tape_pass(struct tape *t, struct tensor *x, struct tensor *dy, struct err *e)
{
	if (!x->grad) {
		x->grad = dy;
		x->grad_written = true;
		return 0;
	}
	const union dev_arg a[] = { { .b = x->grad->at },
				    { .b = dy->at },
				    { .i = tensor_count(dy) },
				    { .f = 1 },
				    { .f = x->grad_written } };
	x->grad_written = true;
	return dev_launch(t->dev, K_axpby, dy->dtype, a, e);
}
