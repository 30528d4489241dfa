/* SPDX-License-Identifier: Apache-2.0 */
/* op_attention.c - causal attention over sequences in a row; see attn_fwd, attn_bwd and sink_fwd in
 * kernel.def. */
#include "tensor/ops.h"

#include "base/err.h"
#include "dev/dev_attn.h"

enum { NSEQ, WINDOW };    /* i[] */
enum { STARTS, KSTARTS }; /* r[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct tensor *q = a->x[0];
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 2,
			      .dim = { q->dim[0], q->dim[1] * q->dim[2] } }; /* (N,H*D) */
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	/* q (N,H,D), k and v (Nk,G,D), y (N,H*D) */
	const struct tensor *q = n->a.x[0], *k = n->a.x[1], *v = n->a.x[2];
	int64_t rows = q->dim[0], h = q->dim[1], d = q->dim[2], g = k->dim[1], lse[2] = { h, rows };
	const bool kept = t->record || n->a.p[0];
	if (kept)
		TRY(tape_new(t, t->mem, DT_F32, 2, lse, &n->saved[0], e));
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = kept ? n->saved[0]->at : DEV_NONE },
				    { .b = q->at },
				    { .b = k->at },
				    { .b = v->at },
				    { .b = n->a.r[STARTS] },
				    { .b = n->a.r[KSTARTS] },
				    { .i = rows },
				    { .i = n->a.i[NSEQ] },
				    { .i = h },
				    { .i = g },
				    { .i = d },
				    { .i = h * d },
				    { .i = tensor_ld(q) },
				    { .i = tensor_ld(k) },
				    { .i = tensor_ld(v) },
				    { .i = n->a.i[WINDOW] },
				    { .f = n->a.f[0] },
				    { .f = n->a.f[1] } };
	TRY(dev_launch(t->dev, K_attn_fwd, t->act, a, e));
	if (!n->a.p[0])
		return 0;
	const union dev_arg sink[] = { { .b = n->y->at },
				       { .b = n->saved[0]->at },
				       { .b = n->a.p[0]->w.data },
				       { .i = rows },
				       { .i = h },
				       { .i = d } };
	return dev_launch(t->dev, K_sink_fwd, t->act, sink, e);
}

static int sink_backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct tensor *q = n->a.x[0];
	struct param *sink = n->a.p[0];
	if (!sink || !sink->trainable)
		return 0;
	const union dev_arg a[] = { { .b = DEV_REF(sink->grad, 0) },
				    { .b = n->y->grad->at },
				    { .b = n->y->at },
				    { .b = n->saved[0]->at },
				    { .b = sink->w.data },
				    { .i = q->dim[0] },
				    { .i = q->dim[1] },
				    { .i = q->dim[2] } };
	return dev_launch(t->dev, K_sink_bwd, t->act, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	/* q (N,H,D), k and v (N,G,D), y (N,H*D) */
	struct tensor *q = n->a.x[0], *k = n->a.x[1], *v = n->a.x[2], *dx[3], *in[3] = { q, k, v };
	int64_t rows = q->dim[0], h = q->dim[1], d = q->dim[2], g = k->dim[1];
	for (int i = 0; i < 3; i++) {
		int acc;
		TRY(tape_grad(t, in[i], &dx[i], &acc, e));
		if (acc)
			return err_set(e, ERR_INTERNAL, "attention: an input that is used twice");
	}
	TRY(sink_backward(t, n, e));
	struct dmem_mark m = dmem_mark(t->scratch);
	const struct dev_attn at = { rows, n->a.i[NSEQ], h, g, d, n->a.i[WINDOW] };
	const int64_t parts = dev_attn_parts(t->dev->units, &at);
	struct dev_ref delta;
	TRY(dmem_take(t->scratch, dev_attn_bytes(&at, parts), &delta, e));
	const union dev_arg a[] = { { .b = dx[0]->at },
				    { .b = dx[1]->at },
				    { .b = dx[2]->at },
				    { .b = n->y->grad->at },
				    { .b = q->at },
				    { .b = k->at },
				    { .b = v->at },
				    { .b = n->y->at },
				    { .b = n->saved[0]->at },
				    { .b = delta },
				    { .b = n->a.r[STARTS] },
				    { .i = rows },
				    { .i = n->a.i[NSEQ] },
				    { .i = h },
				    { .i = g },
				    { .i = d },
				    { .i = h * d },
				    { .i = tensor_ld(q) },
				    { .i = tensor_ld(k) },
				    { .i = tensor_ld(v) },
				    { .i = n->a.i[WINDOW] },
				    { .f = n->a.f[0] },
				    { .f = n->a.f[1] },
				    { .i = parts } };
	int rc = dev_launch(t->dev, K_attn_bwd, t->act, a, e);
	dmem_back(t->scratch, m);
	return rc;
}

/* Computed from the mean length: exact when all sequences are equally long. Half of each square
 * is masked. */
static double flops(const struct tape_node *n)
{
	double rows = (double)n->y->dim[0], mean = rows / (double)n->a.i[NSEQ];
	return 2 * rows * mean * (double)n->y->dim[1];
}

static double bytes(const struct tape_node *n)
{
	return 2.0 * (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[1]) +
	       (double)tensor_bytes(n->a.x[2]);
}

const struct op op_attention = { .name = "attention",
				 .shape = shape,
				 .forward = forward,
				 .backward = backward,
				 .flops = flops,
				 .bytes = bytes };

int op_attention_apply(struct tape *t, struct tensor *q, struct tensor *k, struct tensor *v,
		       struct param *sinks, struct dev_ref starts, struct dev_ref kstarts,
		       int64_t nseq, int64_t window, float scale, float cap, struct tensor **y_p,
		       struct err *e)
{
	return tape_apply(t, &op_attention,
			  &(struct op_args){ .x = { q, k, v },
					     .p = { sinks },
					     .r = { starts, kstarts },
					     .i = { nseq, window },
					     .f = { scale, cap } },
			  y_p, e);
}
