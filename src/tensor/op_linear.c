/* SPDX-License-Identifier: Apache-2.0 */
/* op_linear.c - y = x W^T, with bias, residual and a low-rank adapter in the same op.
 *
 * The weight may be frozen (plain or NF4) or trained. The adapter (Hu et al. 2021, LoRA) is applied
 * as u = drop(x) A^T, y += s u B^T: the product BA is never formed. Backward, with dy given: du = s
 * dy B; dB += s dy^T u; dA += du^T drop(x); dx = dy W + drop'(du A). The residual is added in the
 * accumulator of the product.
 *
 * With magnitudes m (out) (Liu et al. 2024, arXiv 2402.09353, DoRA, section 4) the product
 * z = x W^T + s u B^T is multiplied by m / |W + s B A|, the norm being that of each row and, as in
 * section 4.3, constant in the backward pass: dz = dy m / norm takes the place of dy, and dm = sum
 * of dy z / norm. */
#include "tensor/ops.h"

#include "base/err.h"

enum { RESIDUAL = 1 };                       /* x[] */
enum { W, BIAS, LORA_A, LORA_B, MAGNITUDE }; /* p[] */
enum { U, Z, NORM };                         /* saved[] */
enum { SCALE, DROPOUT };                     /* f[] */
enum { PLACES };                             /* r[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 2,
			      .dim = { tensor_rows(a->x[0]), a->p[W]->dim[0] } };
}

int adapter_dropout(struct tape *t, const struct lora *l, uint64_t key, struct dev_ref y,
		    struct dev_ref x, int64_t n, int64_t c, int acc, struct err *e)
{
	const union dev_arg arg[] = { { .b = y }, { .b = x },   { .b = l->at },      { .i = n },
				      { .i = c }, { .i = acc }, { .f = l->dropout }, { .u = key } };
	return dev_launch(t->dev, K_dropout, t->act, arg, e);
}

/* y = drop(x), as many numbers as the op's input has; with acc 1, y += drop(x). */
static int dropout(struct tape *t, const struct op_args *a, struct dev_ref y, struct dev_ref x,
		   int acc, struct err *e)
{
	const int64_t n = tensor_rows(a->x[0]), c = tensor_count(a->x[0]) / (n ? n : 1);
	const struct lora l = { .at = a->r[PLACES], .dropout = a->f[DROPOUT] };
	return adapter_dropout(t, &l, a->u, y, x, n, c, acc, e);
}

/* drop(x) (N,in) in `scratch`, or x itself without dropout; the mask depends only on the key. */
static int dropped(struct tape *t, const struct tape_node *n, struct dev_ref *xd_p, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	if (!(n->a.f[DROPOUT] > 0)) {
		*xd_p = x->at;
		return 0;
	}
	TRY(dmem_take(t->scratch, tensor_bytes(x), xd_p, e));
	return dropout(t, &n->a, *xd_p, x->at, 0, e);
}

/* y += s drop(x) A^T B^T; keeps u. */
static int add_adapter(struct tape *t, struct tape_node *n, struct dev_ref y, struct err *e)
{
	const struct op_args *a = &n->a;
	const int64_t rows = n->y->dim[0], out = n->y->dim[1],
		      dim[2] = { rows, a->p[LORA_A]->dim[0] }; /* u (N,R) */
	TRY(tape_new(t, t->mem, t->act, 2, dim, &n->saved[U], e));
	struct dmem_mark k = dmem_mark(t->scratch);
	struct dev_ref xd;
	TRY(dropped(t, n, &xd, e));
	TRY(weight_matmul(&a->p[LORA_A]->w, t->scratch, t->act, false, n->saved[U]->at, xd, rows, 0,
			  DEV_NONE, e));
	dmem_back(t->scratch, k);
	return dev_gemm(t->dev,
			&(struct dev_gemm){ .m = rows,
					    .n = out,
					    .k = dim[1],
					    .tb = true,
					    .a = n->saved[U]->at,
					    .b = a->p[LORA_B]->w.data,
					    .c = y,
					    .lda = dim[1],
					    .ldb = dim[1],
					    .ldc = out,
					    .ab_dtype = t->act,
					    .c_dtype = t->act,
					    .alpha = a->f[SCALE],
					    .beta = 1 },
			e);
}

static int scale_columns(struct tape *t, const struct tape_node *n, struct dev_ref y,
			 struct dev_ref x, int acc, struct err *e)
{
	const struct param *w = n->a.p[W];
	const union dev_arg a[] = { { .b = y },
				    { .b = x },
				    { .b = n->a.p[MAGNITUDE]->w.data },
				    { .b = n->saved[NORM]->at },
				    { .i = n->y->dim[0] },
				    { .i = w->dim[0] },
				    { .i = acc } };
	return dev_launch(t->dev, K_scale_columns, t->act, a, e);
}

/* y = z m / norm, added to what is there with acc. */
static int forward_dora(struct tape *t, struct tape_node *n, int acc, struct err *e)
{
	const struct op_args *a = &n->a;
	const struct param *w = a->p[W];
	TRY(tape_new(t, t->mem, t->act, 2, n->y->dim, &n->saved[Z], e));
	TRY(tape_new(t, t->mem, DT_F32, 1, w->dim, &n->saved[NORM], e));
	TRY(weight_matmul(&w->w, t->scratch, t->act, false, n->saved[Z]->at, a->x[0]->at,
			  n->y->dim[0], 0, DEV_NONE, e));
	TRY(add_adapter(t, n, n->saved[Z]->at, e));
	TRY(weight_row_norms(&w->w, a->p[LORA_A], a->p[LORA_B], a->f[SCALE], t->scratch, t->act,
			     n->saved[NORM]->at, e));
	return scale_columns(t, n, n->y->at, n->saved[Z]->at, acc, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct op_args *a = &n->a;
	const struct tensor *x = a->x[0], *residual = a->x[RESIDUAL], *y = n->y;
	const struct param *w = a->p[W], *bias = a->p[BIAS];
	int64_t rows = y->dim[0], out = y->dim[1];
	/* x (N,in), y and residual (N,out) */
	if (residual && a->p[MAGNITUDE])
		TRY(dev_copy(y->at, residual->at, tensor_bytes(y), e));
	if (a->p[MAGNITUDE])
		TRY(forward_dora(t, n, residual ? 1 : 0, e));
	else
		TRY(weight_matmul(&w->w, t->scratch, t->act, false, y->at, x->at, rows,
				  residual ? 1 : 0, residual ? residual->at : DEV_NONE, e));
	if (bias) {
		const union dev_arg arg[] = {
			{ .b = y->at }, { .b = bias->w.data }, { .i = rows }, { .i = out }
		};
		TRY(dev_launch(t->dev, K_addbias, t->act, arg, e));
	}
	return a->p[LORA_A] && !a->p[MAGNITUDE] ? add_adapter(t, n, y->at, e) : 0;
}

/* grad(m,n) f32 += alpha * left(N,m)^T right(N,n) */
static int add_outer(struct tape *t, struct param *p, struct dev_ref left, struct dev_ref right,
		     int64_t rows, int64_t m, int64_t n, float alpha, struct err *e)
{
	return dev_gemm(t->dev,
			&(struct dev_gemm){ .m = m,
					    .n = n,
					    .k = rows,
					    .ta = true,
					    .a = left,
					    .b = right,
					    .c = DEV_REF(p->grad, 0),
					    .lda = m,
					    .ldb = n,
					    .ldc = n,
					    .ab_dtype = t->act,
					    .c_dtype = DT_F32,
					    .alpha = alpha,
					    .beta = 1 },
			e);
}

/* dy (N,out) is that of the product. */
static int backward_lora(struct tape *t, struct tape_node *n, struct dev_ref dy, struct tensor *dx,
			 struct err *e)
{
	const struct op_args *a = &n->a;
	struct tensor *x = a->x[0];
	/* du (N,R), xd and part (N,in) */
	struct dev_ref du, xd, part;
	int64_t rows = n->y->dim[0], out = a->p[W]->dim[0], in = a->p[W]->dim[1],
		r = a->p[LORA_A]->dim[0];
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(dmem_take(t->scratch, (size_t)(rows * r) * dtype_size(t->act), &du, e));
	TRY(dev_gemm(t->dev,
		     &(struct dev_gemm){ .m = rows,
					 .n = r,
					 .k = out,
					 .a = dy,
					 .b = a->p[LORA_B]->w.data,
					 .c = du,
					 .lda = out,
					 .ldb = r,
					 .ldc = r,
					 .ab_dtype = t->act,
					 .c_dtype = t->act,
					 .alpha = a->f[SCALE] },
		     e));
	if (a->p[LORA_B]->trainable)
		TRY(add_outer(t, a->p[LORA_B], dy, n->saved[U]->at, rows, out, r, a->f[SCALE], e));
	if (a->p[LORA_A]->trainable) {
		TRY(dropped(t, n, &xd, e));
		TRY(add_outer(t, a->p[LORA_A], du, xd, rows, r, in, 1, e));
	}
	if (dx && a->f[DROPOUT] > 0) {
		TRY(dmem_take(t->scratch, tensor_bytes(x), &part, e));
		TRY(weight_matmul(&a->p[LORA_A]->w, t->scratch, t->act, true, part, du, rows, 0,
				  DEV_NONE, e));
		TRY(dropout(t, a, dx->at, part, 1, e));
	} else if (dx) {
		TRY(weight_matmul(&a->p[LORA_A]->w, t->scratch, t->act, true, dx->at, du, rows, 1,
				  DEV_NONE, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct op_args *a = &n->a;
	struct tensor *x = a->x[0], *dy = n->y->grad, *dx = NULL;
	struct param *w = a->p[W], *bias = a->p[BIAS];
	struct dmem_mark k = dmem_mark(t->scratch);
	struct dev_ref dz = dy->at;
	/* out is not taken from y: a (N,H*D) result may have been viewed as (N,H,D) since */
	int64_t rows = n->y->dim[0], out = w->dim[0];
	int acc = 0;
	if (x->needs_grad) {
		TRY(tape_grad(t, x, &dx, &acc, e));
		k = dmem_mark(t->scratch);
	}
	if (a->p[MAGNITUDE]) {
		const union dev_arg arg[] = { { .b = DEV_REF(a->p[MAGNITUDE]->grad, 0) },
					      { .b = dy->at },
					      { .b = n->saved[Z]->at },
					      { .b = n->saved[NORM]->at },
					      { .i = rows },
					      { .i = out } };
		if (a->p[MAGNITUDE]->trainable)
			TRY(dev_launch(t->dev, K_dot_columns, t->act, arg, e));
		TRY(dmem_take(t->scratch, tensor_bytes(dy), &dz, e));
		TRY(scale_columns(t, n, dz, dy->at, 0, e));
	}
	if (dx)
		TRY(weight_matmul(&w->w, t->scratch, t->act, true, dx->at, dz, rows, (float)acc,
				  DEV_NONE, e));
	if (w->trainable)
		TRY(add_outer(t, w, dy->at, x->at, rows, out, w->dim[1], 1, e));
	if (bias && bias->trainable) {
		const union dev_arg arg[] = { { .b = DEV_REF(bias->grad, 0) },
					      { .b = dy->at },
					      { .i = rows },
					      { .i = out } };
		TRY(dev_launch(t->dev, K_colsum, t->act, arg, e));
	}
	if (a->p[LORA_A])
		TRY(backward_lora(t, n, dz, dx, e));
	if (a->p[MAGNITUDE])
		dmem_back(t->scratch, k);
	if (a->x[RESIDUAL] && a->x[RESIDUAL]->needs_grad)
		TRY(tape_pass(t, a->x[RESIDUAL], dy,
			      e)); /* last: dy's memory becomes the residual's gradient */
	return 0;
}

static double flops(const struct tape_node *n)
{
	const struct param *w = n->a.p[W], *la = n->a.p[LORA_A];
	double rows = (double)n->y->dim[0], f = 2 * rows * (double)param_count(w);
	return la ? f + 2 * rows * (double)(param_count(la) + param_count(n->a.p[LORA_B])) : f;
}

static double bytes(const struct tape_node *n)
{
	const struct weight *w = &n->a.p[W]->w;
	double weight = w->kind == WEIGHT_NF4
				? (double)w->rows * (double)w->cols * 0.5
				: (double)w->rows * (double)w->cols * dtype_size(w->dtype);
	return weight + (double)tensor_bytes(n->a.x[0]) + (double)tensor_bytes(n->y);
}

const struct op op_linear = { .name = "linear",
			      .shape = shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = bytes };

struct op_args op_linear_args(struct tensor *x, struct param *w, struct param *bias,
			      const struct lora *lora, uint64_t key, struct tensor *residual)
{
	struct op_args a = { .x = { x, residual }, .p = { w, bias }, .u = key };
	if (lora && lora->a) {
		a.p[LORA_A] = lora->a;
		a.p[LORA_B] = lora->b;
		a.p[MAGNITUDE] = lora->m;
		a.f[SCALE] = lora->scale;
		a.f[DROPOUT] = lora->dropout;
		a.r[PLACES] = lora->at;
	}
	return a;
}

int op_linear_apply(struct tape *t, struct tensor *x, struct param *w, struct param *bias,
		    const struct lora *lora, uint64_t key, struct tensor *residual,
		    struct tensor **y_p, struct err *e)
{
	const struct op_args a = op_linear_args(x, w, bias, lora, key, residual);
	return tape_apply(t, &op_linear, &a, y_p, e);
}
