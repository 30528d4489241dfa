/* SPDX-License-Identifier: Apache-2.0 */
/* op_loss.c - head and cross-entropy in one: the logits of a few rows at a time, never of
 * all tokens.
 *
 * Only rows that are trained are computed. On a recording tape the gradient of the sum of losses is
 * computed while the logits are in memory: otherwise backward would have to compute them again. It
 * is multiplied by `scale` (1, or a loss scale) and that of each row by its weight, if there are
 * any. The division by the trained tokens of the global batch is left to the optimizer, because it
 * is the same for every microbatch. */
#include "tensor/ops.h"

#include "base/err.h"

enum { ROWS, LABELS, HITS, WEIGHT }; /* r[] */
enum { LOGITS_BYTES = 48 << 20, ROWS_LEAST = 128, ROWS_MOST = 1024 };

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	(void)t;
	*y = (struct tensor){ .dtype = DT_F32, .ndim = 1, .dim = { a->i[0] } };
}

/* Rows first..first+some of the gathered inputs xg (n,C), their gradients dxg (n,C) (DEV_NONE when
 * x needs none); logits (some,V) f32 is scratch. */
static int block_of_rows(struct tape *t, struct tape_node *n, struct dev_ref xg, struct dev_ref dxg,
			 struct dev_ref logits, int64_t first, int64_t some, struct err *e)
{
	struct param *head = n->a.p[0];
	int64_t v = head->dim[0], c = head->dim[1];
	size_t size = dtype_size(t->act);
	bool learn = n->y->needs_grad;
	struct dev_ref x = xg, dx = dxg, loss = n->y->at, labels = n->a.r[LABELS],
		       hits = n->a.r[HITS], weight = n->a.r[WEIGHT];
	x.off += (size_t)(first * c) * size;
	loss.off += (size_t)first * 4;
	labels.off += (size_t)first * 4;
	hits.off += hits.buf ? (size_t)first * 4 : 0;
	weight.off += weight.buf ? (size_t)first * 4 : 0;
	TRY(dev_gemm(t->dev,
		     &(struct dev_gemm){ .m = some,
					 .n = v,
					 .k = c,
					 .tb = true,
					 .a = x,
					 .b = head->w.data,
					 .c = logits,
					 .lda = c,
					 .ldb = c,
					 .ldc = v,
					 .ab_dtype = t->act,
					 .c_dtype = DT_F32,
					 .alpha = n->a.f[1] },
		     e));
	int64_t ldd = v * 4 / (int64_t)size; /* dlogits overwrite the logits' rows */
	const union dev_arg a[] = { { .b = loss },      { .b = learn ? logits : DEV_NONE },
				    { .b = logits },    { .b = labels },
				    { .b = hits },      { .b = weight },
				    { .i = some },      { .i = v },
				    { .i = v },         { .i = ldd },
				    { .f = n->a.f[0] }, { .f = n->a.f[2] } };
	TRY(dev_launch(t->dev, K_xent, t->act, a, e));
	if (!learn)
		return 0;
	if (dx.buf) {
		dx.off += (size_t)(first * c) * size;
		TRY(dev_gemm(t->dev,
			     &(struct dev_gemm){ .m = some,
						 .n = c,
						 .k = v,
						 .a = logits,
						 .b = head->w.data,
						 .c = dx,
						 .lda = ldd,
						 .ldb = c,
						 .ldc = c,
						 .ab_dtype = t->act,
						 .c_dtype = t->act,
						 .alpha = n->a.f[1] },
			     e));
	}
	if (!head->trainable)
		return 0;
	return dev_gemm(t->dev,
			&(struct dev_gemm){ .m = v,
					    .n = c,
					    .k = some,
					    .ta = true,
					    .a = logits,
					    .b = x,
					    .c = DEV_REF(head->grad, 0),
					    .lda = ldd,
					    .ldb = c,
					    .ldc = c,
					    .ab_dtype = t->act,
					    .c_dtype = DT_F32,
					    .alpha = n->a.f[1],
					    .beta = 1 },
			e);
}

int64_t op_loss_rows(int64_t vocab)
{
	const int64_t rows = LOGITS_BYTES / (vocab * 4);
	return rows < ROWS_LEAST ? ROWS_LEAST : rows > ROWS_MOST ? ROWS_MOST : rows / 16 * 16;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct tensor *x = n->a.x[0];
	int64_t rows = n->a.i[0], v = n->a.p[0]->dim[0], c = n->a.p[0]->dim[1];
	size_t row_bytes = (size_t)c * dtype_size(t->act);
	bool dx = n->y->needs_grad && x->needs_grad;
	if (dx)
		TRY(tape_new(t, t->mem, x->dtype, x->ndim, x->dim, &n->saved[0], e));
	if (dx)
		TRY(dev_zero(n->saved[0]->at, tensor_bytes(x), e));
	int64_t step = op_loss_rows(v);
	if (step > rows)
		step = rows;
	struct dmem_mark k = dmem_mark(t->scratch);
	struct dev_ref xg, dxg = DEV_NONE, logits;
	/* The logits come first: they are the largest part and mostly of one size, so a larger
	 * microbatch adds only a small block. */
	TRY(dmem_take(t->scratch, (size_t)(step * v) * 4, &logits, e));
	TRY(dmem_take(t->scratch, (size_t)rows * row_bytes, &xg, e));
	if (dx)
		TRY(dmem_take(t->scratch, (size_t)rows * row_bytes, &dxg, e));
	const union dev_arg in[] = {
		{ .b = xg }, { .b = x->at }, { .b = n->a.r[ROWS] }, { .i = rows }, { .i = c }
	};
	TRY(dev_launch(t->dev, K_gather_rows, t->act, in, e));
	for (int64_t i = 0; i < rows; i += step)
		TRY(block_of_rows(t, n, xg, dxg, logits, i, rows - i < step ? rows - i : step, e));
	if (dx) {
		const union dev_arg out[] = { { .b = n->saved[0]->at },
					      { .b = dxg },
					      { .b = n->a.r[ROWS] },
					      { .i = rows },
					      { .i = c } };
		TRY(dev_launch(t->dev, K_scatter_rows, t->act, out, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	return n->saved[0] ? tape_pass(t, n->a.x[0], n->saved[0], e) : 0;
}

static double flops(const struct tape_node *n)
{
	return 2.0 * (double)n->a.i[0] * (double)param_count(n->a.p[0]);
}
static double bytes(const struct tape_node *n)
{
	return (double)param_count(n->a.p[0]) * dtype_size(n->a.p[0]->w.dtype) +
	       (double)n->a.i[0] * (double)n->a.p[0]->dim[1] * 2;
}

const struct op op_loss = { .name = "loss",
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_loss_apply(struct tape *t, struct tensor *x, struct param *head, struct dev_ref rows,
		  struct dev_ref labels, struct dev_ref hits, struct dev_ref weight, int64_t n,
		  float factor, float cap, float scale, struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_loss,
			  &(struct op_args){ .x = { x },
					     .p = { head },
					     .r = { rows, labels, hits, weight },
					     .i = { n },
					     .f = { scale, factor, cap } },
			  y_p, e);
}
