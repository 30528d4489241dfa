/* SPDX-License-Identifier: Apache-2.0 */
/* op_batchnorm.c - batch norm over the rows of a pass (Ioffe & Szegedy 2015): x (N,C,P) has for
 * each channel c one mean and one deviation, over all rows and places.
 *
 * Channels become rows, (C, N*P), so that the norm itself is the layer norm's kernel with weights
 * 1. Saved are mean and 1/standard deviation of each channel. */
#include "tensor/ops.h"

#include "base/err.h"
#include "dev/act.h"

enum { WEIGHT, BIAS }; /* p[] */
enum { MEAN, RSTD };   /* saved[] */

struct sizes {
	int64_t n, c, p, rows; /* rows: N*P */
	enum dtype t;
};

static struct sizes sizes_of(const struct tape_node *n)
{
	const struct tensor *x = n->a.x[0];
	const int64_t c = n->a.p[WEIGHT]->dim[0], rows = tensor_count(x) / c;
	return (struct sizes){ x->dim[0], c, rows / x->dim[0], rows, x->dtype };
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = *a->x[0];
	y->needs_grad = y->grad_written = false;
	y->grad = NULL;
}

static int swap(struct tape *t, enum dtype type, struct dev_ref y, struct dev_ref x, int64_t n,
		int64_t a, int64_t b, int acc, struct err *e)
{
	const union dev_arg arg[] = { { .b = y }, { .b = x }, { .i = n },
				      { .i = a }, { .i = b }, { .i = acc } };
	return dev_launch(t->dev, K_swap_axes, type, arg, e);
}

/* n ones, and behind them n zeros: 1/(1+e^0) twice. */
static int ones(struct tape *t, int64_t n, struct dev_ref *one_p, struct dev_ref *zero_p,
		struct err *e)
{
	TRY(dmem_take(t->scratch, (size_t)n * 4, one_p, e));
	TRY(dmem_take(t->scratch, (size_t)n * 4, zero_p, e));
	TRY(dev_zero(*zero_p, (size_t)n * 4, e));
	const union dev_arg half[] = {
		{ .b = *one_p }, { .b = *zero_p }, { .i = n }, { .i = ACT_SIGMOID }
	};
	TRY(dev_launch(t->dev, K_act_fwd, DT_F32, half, e));
	const union dev_arg twice[] = {
		{ .b = *one_p }, { .b = *one_p }, { .i = n }, { .f = 1 }, { .f = 1 }
	};
	return dev_launch(t->dev, K_axpby, DT_F32, twice, e);
}

struct work {
	struct dev_ref one, zero;  /* (max(N*P, C)) */
	struct dev_ref cols, rows; /* (N*P, C) and (C, N*P) */
	struct dev_ref norm;       /* (C, N*P) normed */
};

/* Scratch, and in it x as rows of channels, and that normed. */
static int norm(struct tape *t, struct tape_node *n, const struct sizes *s, struct work *w,
		struct err *e)
{
	const size_t bytes = (size_t)(s->rows * s->c) * dtype_size(s->t);
	struct dev_ref x = n->a.x[0]->at;
	TRY(ones(t, s->rows > s->c ? s->rows : s->c, &w->one, &w->zero, e));
	TRY(dmem_take(t->scratch, bytes, &w->cols, e));
	TRY(dmem_take(t->scratch, bytes, &w->rows, e));
	TRY(dmem_take(t->scratch, bytes, &w->norm, e));
	if (s->p > 1) {
		TRY(swap(t, s->t, w->cols, x, s->n, s->c, s->p, 0, e));
		x = w->cols;
	}
	TRY(swap(t, s->t, w->rows, x, 1, s->rows, s->c, 0, e));
	const union dev_arg a[] = { { .b = w->norm },
				    { .b = n->saved[MEAN]->at },
				    { .b = n->saved[RSTD]->at },
				    { .b = w->rows },
				    { .b = w->one },
				    { .b = w->zero },
				    { .i = s->c },
				    { .i = s->rows },
				    { .f = n->a.f[0] } };
	TRY(dev_launch(t->dev, K_layernorm_fwd, s->t, a, e));
	return swap(t, s->t, w->cols, w->norm, 1, s->c, s->rows, 0, e);
}

static int scale(struct tape *t, const struct tape_node *n, const struct sizes *s,
		 const struct work *w, struct dev_ref y, struct dev_ref x, struct err *e)
{
	const union dev_arg a[] = {
		{ .b = y },      { .b = x },       { .b = n->a.p[WEIGHT]->w.data },
		{ .b = w->one }, { .i = s->rows }, { .i = s->c },
		{ .i = 0 }
	};
	return dev_launch(t->dev, K_scale_columns, s->t, a, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct sizes s = sizes_of(n);
	struct work w;
	TRY(tape_new(t, t->mem, DT_F32, 1, &s.c, &n->saved[MEAN], e));
	TRY(tape_new(t, t->mem, DT_F32, 1, &s.c, &n->saved[RSTD], e));
	const struct dmem_mark k = dmem_mark(t->scratch);
	TRY(norm(t, n, &s, &w, e));
	const struct dev_ref to = s.p > 1 ? w.cols : n->y->at;
	TRY(scale(t, n, &s, &w, to, w.cols, e));
	const union dev_arg a[] = {
		{ .b = to }, { .b = n->a.p[BIAS]->w.data }, { .i = s.rows }, { .i = s.c }
	};
	TRY(dev_launch(t->dev, K_addbias, s.t, a, e));
	if (s.p > 1)
		TRY(swap(t, s.t, n->y->at, to, s.n, s.p, s.c, 0, e));
	dmem_back(t->scratch, k);
	return 0;
}

/* dw += sum of dy * (x normed), db += sum of dy; both (N*P, C). */
static int grads(struct tape *t, const struct tape_node *n, const struct sizes *s,
		 const struct work *w, struct dev_ref dy, struct err *e)
{
	const struct param *weight = n->a.p[WEIGHT], *bias = n->a.p[BIAS];
	const union dev_arg dw[] = { { .b = DEV_REF(weight->grad, 0) },
				     { .b = dy },
				     { .b = w->cols },
				     { .b = w->one },
				     { .i = s->rows },
				     { .i = s->c } };
	const union dev_arg db[] = {
		{ .b = DEV_REF(bias->grad, 0) }, { .b = dy }, { .i = s->rows }, { .i = s->c }
	};
	if (weight->trainable)
		TRY(dev_launch(t->dev, K_dot_columns, s->t, dw, e));
	return bias->trainable ? dev_launch(t->dev, K_colsum, s->t, db, e) : 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct sizes s = sizes_of(n);
	struct tensor *x = n->a.x[0], *dx = NULL;
	struct dev_ref dy = n->y->grad->at, own;
	struct work w;
	int acc = 0;
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	const struct dmem_mark k = dmem_mark(t->scratch);
	TRY(norm(t, n, &s, &w, e));
	TRY(dmem_take(t->scratch, (size_t)(s.rows * s.c) * dtype_size(s.t), &own, e));
	if (s.p > 1) {
		TRY(swap(t, s.t, own, dy, s.n, s.c, s.p, 0, e));
		dy = own;
	}
	TRY(grads(t, n, &s, &w, dy, e));
	if (dx) {
		TRY(scale(t, n, &s, &w, w.cols, dy, e));
		TRY(swap(t, s.t, w.norm, w.cols, 1, s.rows, s.c, 0, e));
		const union dev_arg a[] = { { .b = own },
					    { .b = DEV_NONE },
					    { .b = DEV_NONE },
					    { .b = w.norm },
					    { .b = w.rows },
					    { .b = w.one },
					    { .b = n->saved[MEAN]->at },
					    { .b = n->saved[RSTD]->at },
					    { .i = s.c },
					    { .i = s.rows },
					    { .i = 0 } };
		TRY(dev_launch(t->dev, K_layernorm_bwd, s.t, a, e));
		if (s.p == 1)
			TRY(swap(t, s.t, dx->at, own, 1, s.c, s.rows, acc, e));
		else
			TRY(swap(t, s.t, w.cols, own, 1, s.c, s.rows, 0, e));
		if (s.p > 1)
			TRY(swap(t, s.t, dx->at, w.cols, s.n, s.p, s.c, acc, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n) { return 9.0 * (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_batchnorm = { .name = "batchnorm",
				 .shape = shape,
				 .forward = forward,
				 .backward = backward,
				 .flops = flops,
				 .bytes = bytes };

int op_batchnorm_apply(struct tape *t, struct tensor *x, struct param *w, struct param *b,
		       float eps, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_batchnorm,
			  &(struct op_args){ .x = { x }, .p = { w, b }, .f = { eps } }, y_p, e);
}
