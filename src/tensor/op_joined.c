/* SPDX-License-Identifier: Apache-2.0 */
/* op_joined.c - linear layers that read one x as one product: q, k and v; gate and up.
 *
 * y = x [W1; W2; ..]^T, and dx = dy [W1; W2; ..] with dy (N, sum of out): one sum in float32 where
 * separate layers would add to dx in the activation dtype. Adapters are as in op_linear.c, but u is
 * kept times the scale: with rows that lie apart a library may have no fast code for a product that
 * is scaled and added. Without dropout u = s x [A1; A2; ..]^T is one product too, where all have
 * one scale, and so is du [A1; A2; ..]. */
#include "tensor/ops.h"

#include "base/err.h"

enum { U }; /* saved[] */

/* The sizes of all together, and the parts that have adapters. */
struct sizes {
	int64_t rows, in, out, ranks;
	const struct weight *w[JOINED_MOST], *a[JOINED_MOST];
	int adapters;
	float scale;
	bool dropout, scales; /* scales: not all are `scale` */
};

static struct sizes sizes_of(const struct tape_node *n)
{
	const struct joined_linear *j = n->a.of;
	struct sizes s = { .rows = tensor_rows(n->a.x[0]), .in = j->part[0].w->dim[1] };
	for (int i = 0; i < j->n; i++) {
		const struct linear_part *p = &j->part[i];
		s.w[i] = &p->w->w;
		s.out += p->w->dim[0];
		if (!p->lora.a)
			continue;
		s.a[s.adapters++] = &p->lora.a->w;
		s.ranks += p->lora.a->dim[0];
		s.dropout = p->lora.dropout > 0;
		s.scales = s.scales || (s.adapters > 1 && p->lora.scale != s.scale);
		s.scale = p->lora.scale;
	}
	return s;
}

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct joined_linear *j = a->of;
	*y = (struct tensor){ .dtype = t->act, .ndim = 2, .dim = { a->x[0]->dim[0] } };
	for (int i = 0; i < j->n; i++)
		y->dim[1] += j->part[i].w->dim[0];
}

static struct dev_ref column(struct dev_ref r, int64_t c, enum dtype t)
{
	return DEV_REF(r.buf, r.off + (size_t)c * dtype_size(t));
}

/* Part i of one that has an adapter: it, and where its columns and ranks begin. */
struct place {
	const struct lora *l;
	uint64_t key;
	int64_t out, r, column, rank;
};

/* The next part with an adapter from *i_p on; false: there is none. */
static bool next(const struct joined_linear *j, int *i_p, struct place *p)
{
	for (; *i_p < j->n; ++*i_p) {
		const struct linear_part *x = &j->part[*i_p];
		p->column += p->out;
		p->rank += p->r;
		p->out = x->w->dim[0];
		p->r = x->lora.a ? x->lora.a->dim[0] : 0;
		if (!p->r)
			continue;
		p->l = &x->lora;
		p->key = j->key[*i_p];
		++*i_p;
		return true;
	}
	return false;
}

#define EACH_ADAPTER(j, p) for (int i_ = 0; next(j, &i_, &(p));)

/* drop(x) (N,in) in `scratch`, or x itself without dropout */
static int dropped(struct tape *t, const struct tape_node *n, const struct sizes *s,
		   const struct place *p, struct dev_ref *xd_p, struct err *e)
{
	const struct tensor *x = n->a.x[0];
	*xd_p = x->at;
	if (!s->dropout)
		return 0;
	TRY(dmem_take(t->scratch, tensor_bytes(x), xd_p, e));
	return adapter_dropout(t, p->l, p->key, *xd_p, x->at, s->rows, s->in, 0, e);
}

/* u (N, ranks) = s x [A1; A2; ..]^T */
static int make_u(struct tape *t, struct tape_node *n, const struct sizes *s, struct err *e)
{
	const struct joined_linear *j = n->a.of;
	const struct dev_ref u = n->saved[U]->at;
	struct place p = { 0 };
	if (!s->dropout && !s->scales)
		return weights_matmul(s->a, s->adapters, t->scratch, t->act, false, u,
				      n->a.x[0]->at, s->rows, s->scale, 0, DEV_NONE, e);
	EACH_ADAPTER(j, p)
	{
		struct dmem_mark k = dmem_mark(t->scratch);
		struct dev_gemm g = { .m = s->rows,
				      .n = p.r,
				      .k = s->in,
				      .tb = true,
				      .b = p.l->a->w.data,
				      .c = column(u, p.rank, t->act),
				      .lda = s->in,
				      .ldb = s->in,
				      .ldc = s->ranks,
				      .ab_dtype = t->act,
				      .c_dtype = t->act,
				      .alpha = p.l->scale };
		TRY(dropped(t, n, s, &p, &g.a, e));
		TRY(dev_gemm(t->dev, &g, e));
		dmem_back(t->scratch, k);
	}
	return 0;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct joined_linear *j = n->a.of;
	const struct sizes s = sizes_of(n);
	struct place p = { 0 };
	TRY(weights_matmul(s.w, j->n, t->scratch, t->act, false, n->y->at, n->a.x[0]->at, s.rows, 1,
			   0, DEV_NONE, e));
	if (!s.ranks)
		return 0;
	TRY(tape_new(t, t->mem, t->act, 2, (const int64_t[]){ s.rows, s.ranks }, &n->saved[U], e));
	TRY(make_u(t, n, &s, e));
	EACH_ADAPTER(j, p)
	TRY(dev_gemm(t->dev,
		     &(struct dev_gemm){ .m = s.rows,
					 .n = p.out,
					 .k = p.r,
					 .tb = true,
					 .a = column(n->saved[U]->at, p.rank, t->act),
					 .b = p.l->b->w.data,
					 .c = column(n->y->at, p.column, t->act),
					 .lda = s.ranks,
					 .ldb = p.r,
					 .ldc = s.out,
					 .ab_dtype = t->act,
					 .c_dtype = t->act,
					 .alpha = 1,
					 .beta = 1 },
		     e));
	return 0;
}

/* grad(m,n) f32 += left(N,m)^T right(N,n), with rows lda and ldb apart */
static int add_outer(struct tape *t, const struct param *p, struct dev_ref left, int64_t lda,
		     struct dev_ref right, int64_t ldb, int64_t rows, struct err *e)
{
	return dev_gemm(t->dev,
			&(struct dev_gemm){ .m = p->dim[0],
					    .n = p->dim[1],
					    .k = rows,
					    .ta = true,
					    .a = left,
					    .b = right,
					    .c = DEV_REF(p->grad, 0),
					    .lda = lda,
					    .ldb = ldb,
					    .ldc = p->dim[1],
					    .ab_dtype = t->act,
					    .c_dtype = DT_F32,
					    .alpha = 1,
					    .beta = 1 },
			e);
}

/* du (N, ranks) of one adapter, and the gradients of its A and B */
static int adapter_backward(struct tape *t, const struct tape_node *n, const struct sizes *s,
			    const struct place *p, struct dev_ref du, struct err *e)
{
	const struct dev_ref dy = column(n->y->grad->at, p->column, t->act),
			     part = column(du, p->rank, t->act);
	struct dev_ref xd;
	TRY(dev_gemm(t->dev,
		     &(struct dev_gemm){ .m = s->rows,
					 .n = p->r,
					 .k = p->out,
					 .a = dy,
					 .b = p->l->b->w.data,
					 .c = part,
					 .lda = s->out,
					 .ldb = p->r,
					 .ldc = s->ranks,
					 .ab_dtype = t->act,
					 .c_dtype = t->act,
					 .alpha = p->l->scale },
		     e));
	if (p->l->b->trainable)
		TRY(add_outer(t, p->l->b, dy, s->out, column(n->saved[U]->at, p->rank, t->act),
			      s->ranks, s->rows, e));
	if (!p->l->a->trainable)
		return 0;
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(dropped(t, n, s, p, &xd, e));
	TRY(add_outer(t, p->l->a, part, s->ranks, xd, s->in, s->rows, e));
	dmem_back(t->scratch, k);
	return 0;
}

/* dx (N,in) += drop'(du A), all adapters */
static int add_to_dx(struct tape *t, const struct tape_node *n, const struct sizes *s,
		     struct dev_ref du, struct dev_ref dx, struct err *e)
{
	const struct joined_linear *j = n->a.of;
	struct place p = { 0 };
	struct dev_ref part;
	if (!s->dropout)
		return weights_matmul(s->a, s->adapters, t->scratch, t->act, true, dx, du, s->rows,
				      1, 1, DEV_NONE, e);
	TRY(dmem_take(t->scratch, tensor_bytes(n->a.x[0]), &part, e));
	EACH_ADAPTER(j, p)
	{
		TRY(dev_gemm(t->dev,
			     &(struct dev_gemm){ .m = s->rows,
						 .n = s->in,
						 .k = p.r,
						 .a = column(du, p.rank, t->act),
						 .b = p.l->a->w.data,
						 .c = part,
						 .lda = s->ranks,
						 .ldb = s->in,
						 .ldc = s->in,
						 .ab_dtype = t->act,
						 .c_dtype = t->act,
						 .alpha = 1 },
			     e));
		TRY(adapter_dropout(t, p.l, p.key, dx, part, s->rows, s->in, 1, e));
	}
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct joined_linear *j = n->a.of;
	const struct sizes s = sizes_of(n);
	struct tensor *x = n->a.x[0], *dx = NULL;
	struct place p = { 0 };
	struct dev_ref du;
	int acc = 0;
	if (x->needs_grad) {
		TRY(tape_grad(t, x, &dx, &acc, e));
		TRY(weights_matmul(s.w, j->n, t->scratch, t->act, true, dx->at, n->y->grad->at,
				   s.rows, 1, (float)acc, DEV_NONE, e));
	}
	if (!s.ranks)
		return 0;
	struct dmem_mark k = dmem_mark(t->scratch);
	TRY(dmem_take(t->scratch, (size_t)(s.rows * s.ranks) * dtype_size(t->act), &du, e));
	EACH_ADAPTER(j, p)
	TRY(adapter_backward(t, n, &s, &p, du, e));
	if (dx)
		TRY(add_to_dx(t, n, &s, du, dx->at, e));
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n)
{
	const struct sizes s = sizes_of(n);
	const struct joined_linear *j = n->a.of;
	double f = 2 * (double)(s.rows * s.in) * (double)(s.out + s.ranks);
	struct place p = { 0 };
	EACH_ADAPTER(j, p)
	f += 2 * (double)(s.rows * p.out * p.r);
	return f;
}

static double bytes(const struct tape_node *n)
{
	const struct sizes s = sizes_of(n);
	double all = (double)tensor_bytes(n->a.x[0]) + (double)tensor_bytes(n->y);
	return all + (double)(s.out * s.in) *
			     (s.w[0]->kind == WEIGHT_NF4 ? 0.5 : (double)dtype_size(s.w[0]->dtype));
}

const struct op op_joined = { .name = "joined",
			      .shape = shape,
			      .forward = forward,
			      .backward = backward,
			      .flops = flops,
			      .bytes = bytes };

int op_joined_apply(struct tape *t, struct tensor *x, const struct joined_linear *from,
		    struct tensor **y_p, struct err *e)
{
	struct joined_linear *j = arena_alloc(t->host, sizeof *j);
	bool trains = false;
	if (!j)
		return err_nomem(e, sizeof *j, "the parts of a product");
	*j = *from;
	for (int i = 0; i < j->n; i++)
		trains |= j->part[i].lora.a &&
			  (j->part[i].lora.a->trainable || j->part[i].lora.b->trainable);
	return tape_apply(t, &op_joined, &(struct op_args){ .x = { x }, .of = j, .trains = trains },
			  y_p, e);
}
