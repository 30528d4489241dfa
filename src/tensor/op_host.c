/* SPDX-License-Identifier: Apache-2.0 */
/* op_host.c - an op that is somebody's C function: for devices whose memory is the host's. Numbers
 * go to and come from it as float32. */
#include "tensor/op_host.h"

#include "base/err.h"

#include <string.h>

static const struct host_op *op_of(const struct op_args *a)
{
	return (const struct host_op *)(uintptr_t)a->u;
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 2,
			      .dim = { tensor_rows(a->x[0]), a->i[0] } };
}

static void *host(struct dev_ref r) { return (char *)r.buf->host + r.off; }

static int check(const struct tape *t, const struct op_args *a, struct err *e)
{
	if (!strcmp(t->dev->be->name, "cpu"))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "the block '%s' is a C function, which the device '%s' cannot run: give its "
		       "layers to a worker on a processor",
		       op_of(a)->name, t->dev->be->name);
}

int op_host_as(struct tape *t, struct dev_ref from, enum dtype is, enum dtype want, int64_t n,
	       bool fill, struct dev_ref *r_p, struct err *e)
{
	*r_p = from;
	if (is == want)
		return 0;
	TRY(dmem_take(t->scratch, (size_t)n * dtype_size(want), r_p, e));
	const union dev_arg a[] = {
		{ .b = *r_p }, { .b = from }, { .i = n }, { .i = want }, { .i = is }
	};
	return fill ? dev_launch(t->dev, K_cast, DT_F32, a, e) : 0;
}

int op_host_back(struct tape *t, struct dev_ref to, enum dtype is, struct dev_ref from,
		 enum dtype has, int64_t n, struct err *e)
{
	const union dev_arg a[] = {
		{ .b = to }, { .b = from }, { .i = n }, { .i = is }, { .i = has }
	};
	return is == has ? 0 : dev_launch(t->dev, K_cast, DT_F32, a, e);
}

int op_host_add(struct tape *t, const struct tensor *dx, struct dev_ref from, enum dtype has,
		int acc, struct err *e)
{
	struct dev_ref part = from;
	if (dx->dtype != has)
		TRY(dmem_take(t->scratch, tensor_bytes(dx), &part, e));
	TRY(op_host_back(t, part, dx->dtype, from, has, tensor_count(dx), e));
	const union dev_arg a[] = { { .b = dx->at },
				    { .b = part },
				    { .i = tensor_count(dx) },
				    { .f = 1 },
				    { .f = (float)acc } };
	return dev_launch(t->dev, K_axpby, dx->dtype, a, e);
}

/* x and the parameters. */
static int give(struct tape *t, const struct tape_node *n, struct host_pass *p, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	struct dev_ref r;
	*p = (struct host_pass){ .rows = tensor_rows(x),
				 .in = tensor_cols(x),
				 .out = tensor_cols(n->y) };
	TRY(op_host_as(t, x->at, x->dtype, DT_F32, tensor_count(x), true, &r, e));
	p->x = host(r);
	for (int i = 0; i < HOST_OP_PARAMS && n->a.p[i]; i++) {
		const struct param *w = n->a.p[i];
		if (w->w.kind != WEIGHT_PLAIN)
			return err_set(e, ERR_UNSUPPORTED, "the block '%s' needs plain weights",
				       op_of(&n->a)->name);
		TRY(op_host_as(t, w->w.data, w->w.dtype, DT_F32, param_count(w), true, &r, e));
		p->param[i] = host(r);
		p->dparam[i] = w->trainable ? host(DEV_REF(w->grad, 0)) : NULL;
	}
	return dev_sync(t->dev, e);
}

static int failed(const struct tape_node *n, const char *what, int rc, struct err *e)
{
	return rc ? err_set(e, ERR_INPUT, "the %s function of the block '%s' failed with %d", what,
			    op_of(&n->a)->name, rc)
		  : 0;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct host_op *op = op_of(&n->a);
	const int64_t count = tensor_count(n->y);
	struct dmem_mark k = dmem_mark(t->scratch);
	struct host_pass p;
	struct dev_ref y;
	TRY(check(t, &n->a, e));
	TRY(give(t, n, &p, e));
	TRY(op_host_as(t, n->y->at, n->y->dtype, DT_F32, count, false, &y, e));
	p.y = host(y);
	TRY(failed(n, "forward", op->forward(op->ctx, &p), e));
	TRY(op_host_back(t, n->y->at, n->y->dtype, y, DT_F32, count, e));
	dmem_back(t->scratch, k);
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct host_op *op = op_of(&n->a);
	struct tensor *x = n->a.x[0], *dx = NULL;
	struct host_pass p;
	struct dev_ref dy, own = DEV_NONE;
	int acc = 0;
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(give(t, n, &p, e));
	TRY(op_host_as(t, n->y->grad->at, n->y->grad->dtype, DT_F32, tensor_count(n->y), true, &dy,
		       e));
	p.dy = host(dy);
	if (dx) {
		TRY(dmem_take(t->scratch, (size_t)tensor_count(x) * 4, &own, e));
		p.dx = host(own);
	}
	TRY(dev_sync(t->dev, e));
	TRY(failed(n, "backward", op->backward(op->ctx, &p), e));
	if (dx)
		TRY(op_host_add(t, dx, own, DT_F32, acc, e));
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n) { return (double)tensor_count(n->y); }
static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->y) + (double)tensor_bytes(n->a.x[0]);
}

const struct op op_host = { .name = "host",
			    .shape = shape,
			    .forward = forward,
			    .backward = backward,
			    .flops = flops,
			    .bytes = bytes };

int op_host_apply(struct tape *t, const struct host_op *op, struct tensor *x,
		  struct param *const *p, int64_t out, struct tensor **y_p, struct err *e)
{
	struct op_args a = { .x = { x }, .i = { out }, .u = (uint64_t)(uintptr_t)op };
	for (int i = 0; i < HOST_OP_PARAMS && p && p[i]; i++)
		a.p[i] = p[i];
	return tape_apply(t, &op_host, &a, y_p, e);
}
