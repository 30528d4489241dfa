/* SPDX-License-Identifier: Apache-2.0 */
/* op_grouped.c - the linear layers of the experts, each over its own rows: as many products as
 * there are experts with rows, each one the op linear on a part of x and y. So adapters, biases and
 * 4-bit weights are those of op_linear.c, and a weight in 4 bits is expanded only where rows
 * arrived. Of experts in the memory of the host those are computed first that are on the device,
 * and the next one comes while a product runs: the order changes no result, each has its own
 * rows. */
#include "tensor/routing.h"

#include "base/err.h"
#include "base/rng.h"
#include "tensor/expert_cache.h"

struct how {
	struct grouped g;
	const struct routing *routing;
	struct dev_ref at; /* (M,2): the places in the order of the rows; or NONE */
};

/* The experts that have rows, in the order of their products. */
struct turns {
	int64_t *expert, n;
	int64_t next; /* none before it is missing on the device */
};

/* One expert. */
struct part {
	struct tape_node node;
	struct tensor x, y, dx, dy;
};

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct how *h = a->of;
	*y = (struct tensor){ .dtype = t->act,
			      .ndim = 2,
			      .dim = { a->x[0]->dim[0], h->g.expert[0].w->dim[0] } };
}

/* Rows [first, first+n) of x. */
static struct tensor rows_of(const struct tensor *x, int64_t first, int64_t n)
{
	struct tensor part = *x;
	part.dim[0] = n;
	part.at.off += (size_t)(first * x->dim[1]) * dtype_size(x->dtype);
	part.grad = NULL;
	part.grad_written = false;
	return part;
}

/* The places of the tokens, in the order of the rows. */
static int order_places(struct tape *t, struct how *h, struct err *e)
{
	const struct routing *r = h->routing;
	const int64_t m = r->n * r->k;
	if (!h->g.at.buf || !(h->g.dropout > 0))
		return 0;
	TRY(dmem_take(t->mem, (size_t)m * 8, &h->at, e));
	const union dev_arg a[] = {
		{ .b = h->at }, { .b = h->g.at }, { .b = r->source }, { .i = m }, { .i = 2 }
	};
	return dev_launch(t->dev, K_gather_rows, DT_F32, a, e);
}

static struct param *matrix(const struct how *h, int64_t expert) { return h->g.expert[expert].w; }

static int64_t rows_at(const struct how *h, int64_t x)
{
	return h->routing->first[x + 1] - h->routing->first[x];
}

/* Those that are on the device first, then the longest. */
static bool is_sooner(const struct how *h, int64_t a, int64_t b)
{
	const bool has[2] = { expert_cache_has(matrix(h, a)), expert_cache_has(matrix(h, b)) };
	return has[0] != has[1] ? has[0] : rows_at(h, a) > rows_at(h, b);
}

/* `reads`: products read the matrices, not adapters alone. */
static int take_turns(struct tape *t, const struct how *h, bool reads, struct turns *v,
		      struct err *e)
{
	const int64_t experts = h->routing->experts;
	const bool cached = reads && matrix(h, 0)->cached;
	*v = (struct turns){ .expert = arena_alloc(t->host, (size_t)experts * sizeof *v->expert) };
	if (!v->expert)
		return err_nomem(e, (size_t)experts * sizeof *v->expert, "the order of experts");
	for (int64_t x = 0; x < experts; x++) {
		int64_t at = v->n;
		if (!rows_at(h, x))
			continue;
		for (v->n++; cached && at > 0 && is_sooner(h, x, v->expert[at - 1]); at--)
			v->expert[at] = v->expert[at - 1];
		v->expert[at] = x;
		if (cached)
			expert_cache_want(matrix(h, x));
	}
	v->next = cached ? 0 : v->n;
	return 0;
}

/* Before and behind the product number i. */
static int bring(struct tape *t, const struct how *h, struct turns *v, int64_t i, struct err *e)
{
	struct param *w = matrix(h, v->expert[i]);
	TRY(w->cached ? expert_cache_bring(w, e) : 0);
	while (v->next < v->n && (v->next <= i || expert_cache_has(matrix(h, v->expert[v->next]))))
		v->next++;
	return v->next < v->n ? dev_meet(t->dev, e) : 0;
}

static int bring_next(const struct how *h, const struct turns *v, struct err *e)
{
	return v->next < v->n ? expert_cache_ahead(matrix(h, v->expert[v->next]), e) : 0;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	struct turns v;
	struct how *h = (struct how *)n->a.of;
	const struct routing *r = h->routing;
	struct part *part = arena_alloc(t->host, (size_t)r->experts * sizeof *part);
	if (!part)
		return err_nomem(e, (size_t)r->experts * sizeof *part, "the parts of experts");
	n->parts = part;
	TRY(order_places(t, h, e));
	TRY(take_turns(t, h, true, &v, e));
	for (int64_t i = 0; i < v.n; i++) {
		const int64_t x = v.expert[i], rows = rows_at(h, x);
		const struct linear_part *l = &h->g.expert[x];
		struct lora lora = h->g.adapters ? l->lora : (struct lora){ 0 };
		lora.dropout = h->g.dropout;
		lora.at = h->at;
		lora.at.off += lora.at.buf ? (size_t)r->first[x] * 8 : 0;
		part[x].x = rows_of(n->a.x[0], r->first[x], rows);
		part[x].y = rows_of(n->y, r->first[x], rows);
		part[x].node = (struct tape_node){ .op = &op_linear,
						   .a = op_linear_args(
							   &part[x].x, l->w, l->bias, &lora,
							   rng_fold(h->g.key, (uint64_t)x), NULL),
						   .y = &part[x].y };
		int rc = bring(t, h, &v, i, e);
		if (rc >= 0)
			rc = op_linear.forward(t, &part[x].node, e);
		if (rc >= 0)
			rc = bring_next(h, &v, e);
		if (rc < 0)
			return err_prefix(e, "expert %lld", (long long)x);
	}
	return 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct how *h = n->a.of;
	const struct routing *r = h->routing;
	struct part *part = n->parts;
	struct tensor *x = n->a.x[0], *dx = NULL;
	struct turns v;
	int acc = 0;
	if (x->needs_grad)
		TRY(tape_grad(t, x, &dx, &acc, e));
	const bool reads = dx || h->g.expert[0].lora.m;
	TRY(take_turns(t, h, reads, &v, e));
	for (int64_t at = 0; at < v.n; at++) {
		const int64_t i = v.expert[at], rows = rows_at(h, i);
		struct part *p = &part[i];
		p->dy = rows_of(n->y->grad, r->first[i], rows);
		p->y.grad = &p->dy;
		if (dx) {
			p->dx = rows_of(dx, r->first[i], rows);
			p->x.grad = &p->dx;
			p->x.grad_written = acc;
		}
		struct dmem_mark k = dmem_mark(t->scratch);
		int rc = reads ? bring(t, h, &v, at, e) : 0;
		if (rc >= 0)
			rc = op_linear.backward(t, &p->node, e);
		if (rc >= 0)
			rc = bring_next(h, &v, e);
		if (rc < 0)
			return err_prefix(e, "expert %lld", (long long)i);
		dmem_back(t->scratch, k);
	}
	return 0;
}

static double flops(const struct tape_node *n)
{
	const struct how *h = n->a.of;
	const struct linear_part *l = &h->g.expert[0];
	double each = (double)param_count(l->w);
	if (h->g.adapters && l->lora.a)
		each += (double)(param_count(l->lora.a) + param_count(l->lora.b));
	return 2 * (double)n->y->dim[0] * each;
}

static double bytes(const struct tape_node *n)
{
	const struct how *h = n->a.of;
	const struct weight *w = &h->g.expert[0].w->w;
	double sum = (double)tensor_bytes(n->a.x[0]) + (double)tensor_bytes(n->y);
	for (int64_t x = 0; x < h->routing->experts; x++)
		if (h->routing->first[x + 1] > h->routing->first[x])
			sum += (double)(w->rows * w->cols) *
			       (w->kind == WEIGHT_NF4 ? 0.5 : (double)dtype_size(w->dtype));
	return sum;
}

const struct op op_grouped = { .name = "grouped",
			       .shape = shape,
			       .forward = forward,
			       .backward = backward,
			       .flops = flops,
			       .bytes = bytes };

int op_grouped_apply(struct tape *t, struct tensor *x, const struct routing *r,
		     const struct grouped *g, struct tensor **y_p, struct err *e)
{
	struct how *h = arena_alloc(t->host, sizeof *h);
	bool trains = false;
	if (!h)
		return err_nomem(e, sizeof *h, "the parts of experts");
	*h = (struct how){ *g, r, DEV_NONE };
	for (int64_t i = 0; i < r->experts; i++) {
		const struct linear_part *l = &g->expert[i];
		trains |= l->w->trainable || (l->bias && l->bias->trainable) ||
			  (g->adapters && l->lora.a);
	}
	return tape_apply(t, &op_grouped,
			  &(struct op_args){ .x = { x }, .of = h, .trains = trains }, y_p, e);
}
