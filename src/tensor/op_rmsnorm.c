/* SPDX-License-Identifier: Apache-2.0 */
/* op_rmsnorm.c - root mean square norm over the last dimension (Zhang & Sennrich 2019). Saves 1/rms
 * of each row. A residual is added to what has been normed. */
#include "tensor/ops.h"

#include "base/err.h"

enum { RESIDUAL = 1 }; /* x[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = a->x[0]->dtype, .ndim = a->x[0]->ndim };
	for (int i = 0; i < y->ndim; i++)
		y->dim[i] = a->x[0]->dim[i];
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0], *residual = n->a.x[RESIDUAL];
	int64_t width = n->a.i[0], rows = tensor_count(x) / width;
	TRY(tape_new(t, t->mem, DT_F32, 1, &rows, &n->saved[0], e));
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->saved[0]->at },
				    { .b = x->at },
				    { .b = n->a.p[0]->w.data },
				    { .b = residual ? residual->at : DEV_NONE },
				    { .i = rows },
				    { .i = width },
				    { .f = n->a.f[0] },
				    { .f = n->a.f[1] } };
	return dev_launch(t->dev, K_rmsnorm_fwd, x->dtype, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	struct param *w = n->a.p[0];
	int64_t width = n->a.i[0], rows = tensor_count(x) / width;
	int acc;
	struct dmem_mark k = dmem_mark(t->scratch);
	if (x->needs_grad) {
		TRY(tape_grad(t, x, &dx, &acc, e));
	} else { /* only dw is needed: dx is scratch */
		TRY(tape_new(t, t->scratch, x->dtype, x->ndim, x->dim, &dx, e));
		acc = 0;
	}
	const union dev_arg a[] = { { .b = dx->at },
				    { .b = w->trainable ? DEV_REF(w->grad, 0) : DEV_NONE },
				    { .b = n->y->grad->at },
				    { .b = x->at },
				    { .b = w->w.data },
				    { .b = n->saved[0]->at },
				    { .i = rows },
				    { .i = width },
				    { .i = acc },
				    { .f = n->a.f[1] } };
	int rc = dev_launch(t->dev, K_rmsnorm_bwd, x->dtype, a, e);
	if (!x->needs_grad)
		dmem_back(t->scratch, k);
	if (rc < 0 || !n->a.x[RESIDUAL] || !n->a.x[RESIDUAL]->needs_grad)
		return rc;
	/* last: dy's memory becomes the residual's gradient */
	return tape_pass(t, n->a.x[RESIDUAL], n->y->grad, e);
}

static double flops(const struct tape_node *n) { return 4.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_rmsnorm = { .name = "rmsnorm",
			       .shape = shape,
			       .forward = forward,
			       .backward = backward,
			       .flops = flops,
			       .bytes = bytes };

int op_rmsnorm_apply(struct tape *t, struct tensor *x, struct param *w, int64_t width, float eps,
		     float plus, struct tensor *residual, struct tensor **y_p, struct err *e)
{
	return tape_apply(
		t, &op_rmsnorm,
		&(struct op_args){
			.x = { x, residual }, .p = { w }, .i = { width }, .f = { eps, plus } },
		y_p, e);
}
