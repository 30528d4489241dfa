/* SPDX-License-Identifier: Apache-2.0 */
/* op_text.c - an op that is somebody's text of kernels. Activations are given as the tape's dtype
 * (T of the text), parameters as float32. */
#include "tensor/op_text.h"

#include "base/err.h"
#include "tensor/op_host.h"

static const struct text_op *op_of(const struct op_args *a)
{
	return (const struct text_op *)(uintptr_t)a->u;
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 2,
			      .dim = { tensor_rows(a->x[0]), a->i[0] } };
}

/* The arguments of an entry point, by DEV_TEXT_SIG. */
enum { RESULT, X, DY, P, ROWS = P + TEXT_OP_PARAMS, IN, OUT, WHICH, SET, ARGS = SET + 6 };
_Static_assert(sizeof DEV_TEXT_SIG == ARGS + 1 && (int)TEXT_OP_SETTINGS == ARGS - SET,
	       "the places of arguments");

static int give(struct tape *t, const struct tape_node *n, union dev_arg a[ARGS], struct err *e)
{
	const struct tensor *x = n->a.x[0];
	const struct text_op *op = op_of(&n->a);
	for (int i = 0; i < ROWS; i++)
		a[i] = (union dev_arg){ .b = DEV_NONE };
	a[ROWS].i = tensor_rows(x);
	a[IN].i = tensor_cols(x);
	a[OUT].i = tensor_cols(n->y);
	a[WHICH].i = 0;
	for (int i = 0; i < TEXT_OP_SETTINGS; i++)
		a[SET + i].f = (float)op->set[i];
	TRY(op_host_as(t, x->at, x->dtype, t->act, tensor_count(x), true, &a[X].b, e));
	for (int i = 0; i < TEXT_OP_PARAMS && n->a.p[i]; i++) {
		const struct param *w = n->a.p[i];
		if (w->w.kind != WEIGHT_PLAIN)
			return err_set(e, ERR_UNSUPPORTED, "%s needs plain weights",
				       op->text->name);
		TRY(op_host_as(t, w->w.data, w->w.dtype, DT_F32, param_count(w), true, &a[P + i].b,
			       e));
	}
	return 0;
}

/* `written`: numbers of the result. */
static int launch(struct tape *t, const struct text_op *op, enum dev_text_entry entry,
		  int64_t written, const union dev_arg a[ARGS], struct err *e)
{
	const bool groups = entry == TEXT_PARAMS || op->by_rows;
	const struct dev_text_launch l = {
		.text = op->text,
		.entry = entry,
		.t = t->act,
		.groups = !groups                ? 0
			  : entry == TEXT_PARAMS ? written
						 : a[ROWS].i,
		.lanes = written,
		/* a lane may go through a row of x and of y, and through all rows for a gradient */
		.passes = a[IN].i + a[OUT].i + (entry == TEXT_PARAMS ? a[ROWS].i : 0),
		.arg = a
	};
	return a[ROWS].i ? dev_launch_text(t->dev, &l, e) : 0;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct dmem_mark k = dmem_mark(t->scratch);
	union dev_arg a[ARGS];
	TRY(give(t, n, a, e));
	a[RESULT].b = n->y->at;
	TRY(launch(t, op_of(&n->a), TEXT_FORWARD, tensor_count(n->y), a, e));
	dmem_back(t->scratch, k);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct text_op *op = op_of(&n->a);
	struct tensor *x = n->a.x[0], *dx = NULL;
	union dev_arg a[ARGS];
	int acc = 0;
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(give(t, n, a, e));
	TRY(op_host_as(t, n->y->grad->at, n->y->grad->dtype, t->act, tensor_count(n->y), true,
		       &a[DY].b, e));
	if (dx) {
		TRY(dmem_take(t->scratch, (size_t)tensor_count(x) * dtype_size(t->act),
			      &a[RESULT].b, e));
		TRY(launch(t, op, TEXT_BACKWARD, tensor_count(x), a, e));
		TRY(op_host_add(t, dx, a[RESULT].b, t->act, acc, e));
	}
	for (int i = 0; i < TEXT_OP_PARAMS && n->a.p[i]; i++) {
		const struct param *w = n->a.p[i];
		if (!w->trainable)
			continue;
		a[RESULT].b = DEV_REF(w->grad, 0);
		a[WHICH].i = i;
		TRY(launch(t, op, TEXT_PARAMS, param_count(w), a, e));
	}
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[0]);
}

const struct op op_text = { .name = "text",
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_text_apply(struct tape *t, const struct text_op *op, struct tensor *x,
		  struct param *const *p, int64_t out, struct tensor **y_p, struct err *e)
{
	struct op_args a = { .x = { x }, .i = { out }, .u = (uint64_t)(uintptr_t)op };
	for (int i = 0; i < TEXT_OP_PARAMS && p && p[i]; i++)
		a.p[i] = p[i];
	return tape_apply(t, &op_text, &a, y_p, e);
}
