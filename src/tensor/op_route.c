/* SPDX-License-Identifier: Apache-2.0 */
/* op_route.c - which experts a token goes to. The choice comes to the host, which sorts it by
 * counting: so the products of the experts have their true sizes. The counts and sums that
 * auxiliary losses need are taken on the way. */
#include "tensor/routing.h"

#include "base/err.h"

enum { PROBABILITY, LSE, CHOSEN }; /* saved[] */

struct how {
	struct router r;
	struct routing *routing;
};

static void shape(const struct tape *t, const struct op_args *a, struct tensor *y)
{
	const struct how *h = a->of;
	(void)t;
	*y = (struct tensor){ .dtype = DT_F32, .ndim = 2, .dim = { a->x[0]->dim[0], h->r.k } };
}

/* The order of the rows from the experts of each token. */
static int sort(struct tape *t, const int32_t *chosen, struct routing *r, struct err *e)
{
	const int64_t m = r->n * r->k;
	int64_t *first = arena_alloc(t->host, (size_t)(r->experts + 1) * sizeof *first),
		*next = arena_alloc(t->host, (size_t)r->experts * sizeof *next);
	int32_t *source = arena_alloc(t->host, (size_t)m * sizeof *source),
		*place = arena_alloc(t->host, (size_t)m * sizeof *place);
	if (!first || !next || !source || !place)
		return err_nomem(e, (size_t)m * 8, "the order of a token's experts");
	for (int64_t i = 0; i < m; i++) {
		if (chosen[i] < 0 || chosen[i] >= r->experts)
			return err_set(e, ERR_INTERNAL, "a token chose expert %d of %lld",
				       chosen[i], (long long)r->experts);
		first[chosen[i] + 1]++;
	}
	for (int64_t x = 0; x < r->experts; x++) {
		first[x + 1] += first[x];
		next[x] = first[x];
	}
	for (int64_t i = 0; i < m; i++) {
		place[i] = (int32_t)next[chosen[i]]++;
		source[place[i]] = (int32_t)(i / r->k);
	}
	r->first = first;
	r->token = source;
	TRY(dmem_take(t->mem, (size_t)m * 4, &r->source, e));
	TRY(dmem_take(t->mem, (size_t)m * 4, &r->place, e));
	TRY(dev_upload(r->source, source, (size_t)m * 4, e));
	return dev_upload(r->place, place, (size_t)m * 4, e);
}

/* Adds a layer to the sums of the pass. */
static int count(struct tape *t, const struct tape_node *n, const struct how *h, struct err *e)
{
	const struct routing *r = h->routing;
	struct router_sums *s = h->r.sums;
	struct dmem_mark k = dmem_mark(t->scratch);
	struct dev_ref sum;
	const int64_t squares = (r->n + 4095) / 4096;
	float *v = arena_alloc(t->host, (size_t)(r->experts + squares) * sizeof *v);
	if (!v)
		return err_nomem(e, (size_t)(r->experts + squares) * sizeof *v, "a router's sums");
	TRY(dmem_take(t->scratch, (size_t)(r->experts + squares) * 4, &sum, e));
	TRY(dev_zero(sum, (size_t)r->experts * 4, e));
	const union dev_arg of_p[] = { { .b = sum },
				       { .b = n->saved[PROBABILITY]->at },
				       { .i = r->n },
				       { .i = r->experts } },
			    of_lse[] = { { .b = DEV_REF(sum.buf,
							sum.off + (size_t)r->experts * 4) },
					 { .b = n->saved[LSE]->at },
					 { .i = r->n } };
	TRY(dev_launch(t->dev, K_colsum, DT_F32, of_p, e));
	TRY(dev_launch(t->dev, K_sqnorm, DT_F32, of_lse, e));
	TRY(dev_download(v, sum, (size_t)(r->experts + squares) * 4, e));
	dmem_back(t->scratch, k);
	s->rows += (double)r->n;
	for (int64_t i = 0; i < squares; i++)
		s->square += (double)v[r->experts + i];
	for (int64_t x = 0; x < r->experts; x++) {
		s->picks[x] += (double)(r->first[x + 1] - r->first[x]);
		s->probability[x] += (double)v[x];
	}
	return 0;
}

static int forward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct how *h = n->a.of;
	const struct tensor *x = n->a.x[0];
	struct routing *r = h->routing;
	const int64_t dim[2] = { x->dim[0], x->dim[1] }, picks[2] = { dim[0], h->r.k };
	*r = (struct routing){ .n = dim[0], .experts = dim[1], .k = picks[1] };
	TRY(tape_new(t, t->mem, DT_F32, 2, dim, &n->saved[PROBABILITY], e));
	TRY(tape_new(t, t->mem, DT_F32, 1, dim, &n->saved[LSE], e));
	TRY(tape_new(t, t->mem, DT_I32, 2, picks, &n->saved[CHOSEN], e));
	int32_t *chosen = arena_alloc(t->host, tensor_bytes(n->saved[CHOSEN]));
	if (!chosen)
		return err_nomem(e, tensor_bytes(n->saved[CHOSEN]), "the experts of tokens");
	const union dev_arg a[] = { { .b = n->saved[PROBABILITY]->at },
				    { .b = n->saved[LSE]->at },
				    { .b = n->y->at },
				    { .b = n->saved[CHOSEN]->at },
				    { .b = x->at },
				    { .b = h->r.bias ? h->r.bias->w.data : DEV_NONE },
				    { .i = dim[0] },
				    { .i = dim[1] },
				    { .i = picks[1] },
				    { .i = h->r.whole },
				    { .i = h->r.sigmoid },
				    { .f = h->r.scale } };
	TRY(dev_launch(t->dev, K_route_fwd, x->dtype, a, e));
	if (r->experts > 1) /* of one there is no choice, and `chosen` is all 0 */
		TRY(dev_download(chosen, n->saved[CHOSEN]->at, tensor_bytes(n->saved[CHOSEN]), e));
	r->chosen = n->saved[CHOSEN]->at;
	TRY(sort(t, chosen, r, e));
	return h->r.sums && h->r.count ? count(t, n, h, e) : 0;
}

static int backward(struct tape *t, struct tape_node *n, struct err *e)
{
	const struct how *h = n->a.of;
	struct tensor *x = n->a.x[0], *dx;
	struct dmem_mark k;
	struct dev_ref balance = DEV_NONE;
	int acc;
	if (!x->needs_grad)
		return 0;
	TRY(tape_grad(t, x, &dx, &acc, e));
	struct router_sums *s = h->r.sums;
	if (acc || (s && !s->known))
		return err_set(e, ERR_INTERNAL, "route: %s",
			       acc ? "logits that are used twice"
				   : "the derivatives of the auxiliary loss are missing");
	k = dmem_mark(t->scratch);
	if (s) {
		TRY(dmem_take(t->scratch, (size_t)x->dim[1] * 4, &balance, e));
		TRY(dev_upload(balance, s->balance, (size_t)x->dim[1] * 4, e));
	}
	const union dev_arg a[] = { { .b = dx->at },
				    { .b = n->y->grad->at },
				    { .b = n->saved[PROBABILITY]->at },
				    { .b = n->saved[LSE]->at },
				    { .b = n->y->at },
				    { .b = n->saved[CHOSEN]->at },
				    { .b = balance },
				    { .b = x->at },
				    { .i = x->dim[0] },
				    { .i = x->dim[1] },
				    { .i = h->r.k },
				    { .i = h->r.whole },
				    { .i = h->r.sigmoid },
				    { .f = h->r.scale },
				    { .f = s ? s->z : 0 } };
	TRY(dev_launch(t->dev, K_route_bwd, x->dtype, a, e));
	dmem_back(t->scratch, k);
	return 0;
}

static double flops(const struct tape_node *n)
{
	const struct how *h = n->a.of;
	return (5.0 + (double)h->r.k) * (double)tensor_count(n->a.x[0]);
}
static double bytes(const struct tape_node *n)
{
	return (double)tensor_bytes(n->a.x[0]) + 4.0 * (double)tensor_count(n->a.x[0]);
}

const struct op op_route = { .name = "route",
			     .shape = shape,
			     .forward = forward,
			     .backward = backward,
			     .flops = flops,
			     .bytes = bytes };

int op_route_apply(struct tape *t, struct tensor *logits, const struct router *how,
		   struct routing **r_p, struct tensor **weight_p, struct err *e)
{
	struct how *h = arena_alloc(t->host, sizeof *h);
	struct routing *r = arena_alloc(t->host, sizeof *r);
	if (!h || !r)
		return err_nomem(e, sizeof *r, "a choice of experts");
	*h = (struct how){ *how, r };
	h->r.scale = how->scale > 0 ? how->scale : 1;
	*r_p = r;
	return tape_apply(t, &op_route, &(struct op_args){ .x = { logits }, .of = h }, weight_p, e);
}
