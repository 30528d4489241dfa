/* SPDX-License-Identifier: Apache-2.0 */
/* op_delta.c - linear attention by the gated delta rule; see delta_fwd in kernel.def. */
#include "tensor/ops.h"

#include "base/err.h"
#include "dev/dev_delta.h"

enum { X, A, B };                    /* x[] */
enum { DECAY, DT };                  /* p[] */
enum { START, STATE };               /* r[] */
enum { NSEQ, KEYS, VALUES, DK, DV }; /* i[] */

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 3,
			      .dim = { a->x[X]->dim[0], a->i[VALUES], a->i[DV] } };
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const int64_t *i = n->a.i, dim[2] = { n->y->dim[0], 2 * (i[KEYS] + i[VALUES]) };
	TRY(tape_new(t, t->mem, DT_F32, 2, dim, &n->saved[0], e));
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->saved[0]->at },
				    { .b = n->a.x[X]->at },
				    { .b = n->a.x[A]->at },
				    { .b = n->a.x[B]->at },
				    { .b = n->a.p[DECAY]->w.data },
				    { .b = n->a.p[DT]->w.data },
				    { .b = n->a.r[START] },
				    { .b = n->a.r[STATE] },
				    { .i = n->y->dim[0] },
				    { .i = i[NSEQ] },
				    { .i = i[KEYS] },
				    { .i = i[VALUES] },
				    { .i = i[DK] },
				    { .i = i[DV] } };
	return dev_launch(t->dev, K_delta_fwd, t->act, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const int64_t *i = n->a.i;
	struct tensor *dx[3];
	struct param *decay = n->a.p[DECAY], *dt = n->a.p[DT];
	for (int k = 0; k < 3; k++) {
		int acc;
		TRY(tape_grad(t, n->a.x[k], &dx[k], &acc, e));
		if (acc)
			return err_set(e, ERR_INTERNAL, "delta: an input that is used twice");
	}
	const struct dev_delta d = { n->y->dim[0], i[NSEQ], i[VALUES], i[DK], i[DV] };
	/* of a processor, units is 0: its threads have memory of their own */
	const int64_t parts = dev_delta_parts(t->dev->units, &d);
	struct dmem_mark m = dmem_mark(t->scratch);
	struct dev_ref sums = DEV_NONE;
	if (t->dev->units)
		TRY(dmem_take(t->scratch, dev_delta_bytes(&d, parts), &sums, e));
	const bool trained = decay->trainable;
	const union dev_arg a[] = { { .b = dx[X]->at },
				    { .b = dx[A]->at },
				    { .b = dx[B]->at },
				    { .b = trained ? DEV_REF(decay->grad, 0) : DEV_NONE },
				    { .b = trained ? DEV_REF(dt->grad, 0) : DEV_NONE },
				    { .b = n->y->grad->at },
				    { .b = n->saved[0]->at },
				    { .b = n->a.x[X]->at },
				    { .b = n->a.x[A]->at },
				    { .b = n->a.x[B]->at },
				    { .b = decay->w.data },
				    { .b = dt->w.data },
				    { .b = n->a.r[START] },
				    { .b = sums },
				    { .i = d.n },
				    { .i = d.s },
				    { .i = i[KEYS] },
				    { .i = d.h },
				    { .i = d.k },
				    { .i = d.v },
				    { .i = parts },
				    { .i = dev_delta_chunk(&d) } };
	int rc = dev_launch(t->dev, K_delta_bwd, t->act, a, e);
	dmem_back(t->scratch, m);
	return rc;
}

/* Decay, what the state says of a key, the update, and what it says of a query. */
static double flops(const struct tape_node *n)
{
	return 7.0 * (double)tensor_count(n->y) * (double)n->a.i[DK];
}

static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[X]);
}

const struct op op_delta = { .name = "delta",
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = bytes };

int op_delta_apply(struct tape *t, struct tensor *x, struct tensor *a, struct tensor *b,
		   struct param *decay, struct param *dt, const struct delta_heads *h,
		   struct dev_ref start, int64_t nseq, struct dev_ref state, struct tensor **y_p,
		   struct err *e)
{
	return tape_apply(t, &op_delta,
			  &(struct op_args){ .x = { x, a, b },
					     .p = { decay, dt },
					     .r = { start, state },
					     .i = { nseq, h->keys, h->values, h->dk, h->dv } },
			  y_p, e);
}
