/* SPDX-License-Identifier: Apache-2.0 */
/* op_conv2d.c - y = x * w + b over images, as a matrix product over what each window sees (im2col).
 *
 * The images of a microbatch are worked through in parts whose windows take at most COLS_BYTES, so
 * the memory does not grow with the microbatch. Nothing is saved: backward collects the windows
 * again. Parts follow from the shapes, so the sums of dw have one order. */
#include "tensor/ops.h"

#include "base/err.h"

enum { W, BIAS };                /* p[] */
enum { KY, KX, STRIDE, PY, PX }; /* i[] */
enum { COLS_BYTES = 32 << 20 };

struct sizes {
	int64_t n, c, y, x, out, oy, ox;
	int64_t each, windows; /* numbers that a window sees; windows of an image */
	int64_t part;          /* images at once */
};

static void measure(const struct op_args *a, struct sizes *s)
{
	const struct tensor *x = a->x[0];
	*s = (struct sizes){ .n = x->dim[0],
			     .c = x->dim[1],
			     .y = x->dim[2],
			     .x = x->dim[3],
			     .out = a->p[W]->dim[0],
			     .oy = (x->dim[2] + 2 * a->i[PY] - a->i[KY]) / a->i[STRIDE] + 1,
			     .ox = (x->dim[3] + 2 * a->i[PX] - a->i[KX]) / a->i[STRIDE] + 1 };
	s->each = s->c * a->i[KY] * a->i[KX];
	s->windows = s->oy * s->ox;
	s->part = COLS_BYTES / (s->each * s->windows * (int64_t)dtype_size(x->dtype));
	s->part = s->part < 1 ? 1 : s->part > s->n ? s->n : s->part;
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	struct sizes s;
	measure(a, &s);
	*y = (struct tensor){ .dtype = t->act, .ndim = 4, .dim = { s.n, s.out, s.oy, s.ox } };
}

/* Images [first, first+n): the windows of x to cols, or (back) cols to dx. */
static int windows(struct tape *t, const struct op_args *a, const struct sizes *s, bool back,
		   struct dev_ref cols, struct dev_ref x, int64_t first, int64_t n, int acc,
		   struct err *e)
{
	x.off += (size_t)(first * s->c * s->y * s->x) * dtype_size(t->act);
	const union dev_arg arg[] = { { .b = back ? x : cols },
				      { .b = back ? cols : x },
				      { .i = n },
				      { .i = s->c },
				      { .i = s->y },
				      { .i = s->x },
				      { .i = a->i[KY] },
				      { .i = a->i[KX] },
				      { .i = a->i[STRIDE] },
				      { .i = a->i[PY] },
				      { .i = a->i[PX] },
				      { .i = acc } };
	return dev_launch(t->dev, back ? K_col2im : K_im2col, t->act, arg, e);
}

static int swap(struct tape *t, struct dev_ref y, struct dev_ref x, int64_t n, int64_t a, int64_t b,
		struct err *e)
{
	const union dev_arg arg[] = { { .b = y }, { .b = x }, { .i = n },
				      { .i = a }, { .i = b }, { .i = 0 } };
	return dev_launch(t->dev, K_swap_axes, t->act, arg, e);
}

/* Of images from `first` on, in y (N,out,oy,ox). */
static struct dev_ref image(const struct tape *t, const struct tensor *y, const struct sizes *s,
			    int64_t first)
{
	struct dev_ref r = y->at;
	r.off += (size_t)(first * s->out * s->windows) * dtype_size(t->act);
	return r;
}

static int take_rows(struct tape *t, const struct sizes *s, struct dev_ref *cols,
		     struct dev_ref *rows, struct err *e)
{
	const size_t size = (size_t)(s->part * s->windows) * dtype_size(t->act);
	TRY(dmem_take(t->scratch, size * (size_t)s->each, cols, e));
	return dmem_take(t->scratch, size * (size_t)s->out, rows, e);
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct op_args *a = &n->a;
	struct sizes s;
	struct dev_ref cols, rows; /* (windows, each), (windows, out) */
	struct dmem_mark k = dmem_mark(t->scratch);
	measure(a, &s);
	TRY(take_rows(t, &s, &cols, &rows, e));
	for (int64_t i = 0; i < s.n; i += s.part) {
		const int64_t some = s.n - i < s.part ? s.n - i : s.part, m = some * s.windows;
		TRY(windows(t, a, &s, false, cols, a->x[0]->at, i, some, 0, e));
		TRY(weight_matmul(&a->p[W]->w, t->scratch, t->act, false, rows, cols, m, 0,
				  DEV_NONE, e));
		if (a->p[BIAS]) {
			const union dev_arg arg[] = { { .b = rows },
						      { .b = a->p[BIAS]->w.data },
						      { .i = m },
						      { .i = s.out } };
			TRY(dev_launch(t->dev, K_addbias, t->act, arg, e));
		}
		TRY(swap(t, image(t, n->y, &s, i), rows, some, s.windows, s.out, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

/* dw += rows^T cols, db += the sum of rows. */
static int add_params(struct tape *t, const struct op_args *a, const struct sizes *s,
		      struct dev_ref rows, struct dev_ref cols, int64_t m, struct err *e)
{
	const struct param *w = a->p[W], *b = a->p[BIAS];
	if (b && b->trainable) {
		const union dev_arg arg[] = {
			{ .b = DEV_REF(b->grad, 0) }, { .b = rows }, { .i = m }, { .i = s->out }
		};
		TRY(dev_launch(t->dev, K_colsum, t->act, arg, e));
	}
	return !w->trainable ? 0
			     : dev_gemm(t->dev,
					&(struct dev_gemm){ .m = s->out,
							    .n = s->each,
							    .k = m,
							    .ta = true,
							    .a = rows,
							    .b = cols,
							    .c = DEV_REF(w->grad, 0),
							    .lda = s->out,
							    .ldb = s->each,
							    .ldc = s->each,
							    .ab_dtype = t->act,
							    .c_dtype = DT_F32,
							    .alpha = 1,
							    .beta = 1 },
					e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct op_args *a = &n->a;
	struct tensor *x = a->x[0], *dx = NULL;
	struct sizes s;
	struct dev_ref cols, rows;
	int acc = 0;
	measure(a, &s);
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(take_rows(t, &s, &cols, &rows, e));
	for (int64_t i = 0; i < s.n; i += s.part) {
		const int64_t some = s.n - i < s.part ? s.n - i : s.part, m = some * s.windows;
		TRY(swap(t, rows, image(t, n->y->grad, &s, i), some, s.out, s.windows, e));
		if (a->p[W]->trainable)
			TRY(windows(t, a, &s, false, cols, x->at, i, some, 0, e));
		TRY(add_params(t, a, &s, rows, cols, m, e));
		if (!dx)
			continue;
		TRY(weight_matmul(&a->p[W]->w, t->scratch, t->act, true, cols, rows, m, 0, DEV_NONE,
				  e));
		TRY(windows(t, a, &s, true, cols, dx->at, i, some, acc, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n)
{
	return 2.0 * (double)tensor_count(n->y) * (double)n->a.p[W]->dim[1];
}
static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[0]);
}

const struct op op_conv2d = { .name = "conv2d",
			      .shape = shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = bytes };

int op_conv2d_apply(struct tape *t, struct tensor *x, struct param *w, struct param *bias,
		    const struct conv2d *c, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_conv2d,
			  &(struct op_args){ .x = { x },
					     .p = { w, bias },
					     .i = { c->ky, c->kx, c->stride, c->py, c->px } },
			  y_p, e);
}
