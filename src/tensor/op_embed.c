/* SPDX-License-Identifier: Apache-2.0 */
/* op_embed.c - token embedding: rows of a table. */
#include "tensor/ops.h"

#include "base/err.h"

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	y->dtype = t->act;
	y->ndim = 2;
	y->dim[0] = a->i[0];
	y->dim[1] = a->p[0]->dim[1];
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const union dev_arg a[] = { { .b = n->y->at },
				    { .b = n->a.p[0]->w.data },
				    { .b = n->a.r[0] },
				    { .i = n->y->dim[0] },
				    { .i = n->y->dim[1] } };
	return dev_launch(t->dev, K_embed_fwd, t->act, a, e);
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const union dev_arg a[] = { { .b = DEV_REF(n->a.p[0]->grad, 0) },
				    { .b = n->y->grad->at },
				    { .b = n->a.r[0] },
				    { .i = n->y->dim[0] },
				    { .i = n->y->dim[1] } };
	return dev_launch(t->dev, K_embed_bwd, t->act, a, e);
}

static double flops(const struct tape_node *n)
{
	(void)n;
	return 0;
}

static double bytes(const struct tape_node *n) { return 2.0 * (double)tensor_bytes(n->y); }

const struct op op_embed = { .name = "embed",
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = bytes };

int op_embed_apply(struct tape *t, struct param *table, struct dev_ref ids, int64_t n,
		   struct tensor **y_p, struct err *e)
{
	return tape_apply(t, &op_embed,
			  &(struct op_args){ .p = { table }, .r = { ids }, .i = { n } }, y_p, e);
}
