/* SPDX-License-Identifier: Apache-2.0 */
/* op_layernorm.c - layer norm over the last numbers of a row (Ba et al. 2016). Saves mean and
 * 1/standard deviation of each row. */
#include "tensor/ops.h"

#include "base/err.h"

enum { WEIGHT, BIAS }; /* p[] */
enum { MEAN, RSTD };   /* saved[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = *a->x[0];
	y->needs_grad = y->grad_written = false;
	y->grad = NULL;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const int64_t width = n->a.i[0], rows = tensor_count(x) / width;
	TRY(tape_new(t, t->mem, DT_F32, 1, &rows, &n->saved[MEAN], e));
	TRY(tape_new(t, t->mem, DT_F32, 1, &rows, &n->saved[RSTD], e));
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->saved[MEAN]->at },
				    { .b = n->saved[RSTD]->at },
				    { .b = x->at },
				    { .b = n->a.p[WEIGHT]->w.data },
				    { .b = n->a.p[BIAS]->w.data },
				    { .i = rows },
				    { .i = width },
				    { .f = n->a.f[0] } };
	return dev_launch(t->dev, K_layernorm_fwd, x->dtype, a, e);
}

static struct dev_ref grad_of(const struct param *p)
{
	return p->trainable ? DEV_REF(p->grad, 0) : DEV_NONE;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0], *dx;
	const int64_t width = n->a.i[0], rows = tensor_count(x) / width;
	int acc = 0;
	struct dmem_mark k = dmem_mark(t->scratch);
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	else /* only those of the parameters are needed: dx is scratch */
		TRY(tape_new(t, t->scratch, x->dtype, x->ndim, x->dim, &dx, e));
	const union dev_arg a[] = { { .b = dx->at },
				    { .b = grad_of(n->a.p[WEIGHT]) },
				    { .b = grad_of(n->a.p[BIAS]) },
				    { .b = n->y->grad->at },
				    { .b = x->at },
				    { .b = n->a.p[WEIGHT]->w.data },
				    { .b = n->saved[MEAN]->at },
				    { .b = n->saved[RSTD]->at },
				    { .i = rows },
				    { .i = width },
				    { .i = acc } };
	int rc = dev_launch(t->dev, K_layernorm_bwd, x->dtype, a, e);
	if (!x->needs_grad)
		dmem_back(t->scratch, k);
	return rc;
}

static double flops(const struct tape_node *n) { return 7.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_layernorm = { .name = "layernorm",
				 .shape = shape,
				 .forward = forward,
				 .backward = backward,
				 .flops = flops,
				 .bytes = bytes };

int op_layernorm_apply(struct tape *t, struct tensor *x, struct param *w, struct param *b,
		       int64_t width, float eps, struct tensor **y_p, struct err *e)
{
	return tape_apply(
		t, &op_layernorm,
		&(struct op_args){ .x = { x }, .p = { w, b }, .i = { width }, .f = { eps } }, y_p,
		e);
}
