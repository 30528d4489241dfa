/* SPDX-License-Identifier: Apache-2.0 */
/* grads.c - see grads.h. */
#include "engine/grads.h"

#include "base/err.h"
#include "base/mem.h"
#include "optim/optim.h"

static int part_of(const struct stage *s, const struct param *p, int parts)
{
	return s->end && p == s->head ? GRADS_HEAD : stage_part_of(s, p->layer, parts);
}

int grads_init(struct grads *g, struct stage *s, int part, int parts, enum sum_order o,
	       struct err *e)
{
	*g = (struct grads){ .dev = s->dev, .order = o };
	g->param = mem_array(s->nparam + 1, sizeof *g->param);
	g->at = mem_array(s->nparam + 1, sizeof *g->at);
	if (!g->param || !g->at)
		return err_nomem(e, s->nparam * sizeof *g->param, "the gradients of a stage");
	for (size_t i = s->nparam; i-- > 0;) {
		struct param *p = &s->param[i];
		if (!p->grad || part_of(s, p, parts) != part)
			continue;
		g->param[g->n] = p;
		g->at[g->n++] = g->count;
		g->count += (size_t)param_count(p);
	}
	g->at[g->n] = g->count;
	return 0;
}

void grads_release(struct grads *g)
{
	for (size_t k = 0; k < g->buffers; k++)
		dev_free(g->node[k].buf);
	mem_free(g->node);
	mem_free(g->param);
	mem_free(g->at);
	*g = (struct grads){ 0 };
}

void grads_reset(struct grads *g) { g->nodes = 0; }

static int add_to(struct dev_ref to, struct dev_ref from, size_t count, struct err *e)
{
	const union dev_arg a[] = {
		{ .b = to }, { .b = from }, { .i = (int64_t)count }, { .f = 1 }, { .f = 1 }
	};
	return dev_launch(to.buf->dev, K_axpby, DT_F32, a, e);
}

/* A buffer behind the nodes in use. */
static int spare(struct grads *g, struct err *e)
{
	if (g->nodes < g->buffers)
		return 0;
	if (!mem_grow(&g->node, &g->cap, g->buffers + 1, sizeof *g->node))
		return err_nomem(e, (g->buffers + 1) * sizeof *g->node, "gradients");
	struct dev_buf *b;
	TRY(dev_alloc(g->dev, g->count * 4, &b, e));
	g->node[g->buffers++] = (struct grad_node){ 0, 0, b };
	return 0;
}

/* Adds the last node to the one before it. */
static int merge(struct grads *g, struct err *e)
{
	struct grad_node *left = &g->node[g->nodes - 2], *right = left + 1;
	TRY(add_to(DEV_REF(left->buf, 0), DEV_REF(right->buf, 0), g->count, e));
	left->last = right->last;
	g->nodes--;
	return 0;
}

/* Whether the two are the children of one node. */
static bool siblings(const struct grad_node *a, int first, int last)
{
	int size = last - first;
	return a->last == first && a->last - a->first == size && a->first % (2 * size) == 0;
}

int grads_add(struct grads *g, int m, struct err *e)
{
	if (g->order != SUM_EXACT || !g->count)
		return 0;
	struct grad_node *before = g->nodes ? &g->node[g->nodes - 1] : NULL;
	const bool into = before && siblings(before, m, m + 1);
	if (!into)
		TRY(spare(g, e));
	struct grad_node *to = &g->node[into ? g->nodes - 1 : g->nodes];
	for (size_t i = 0; i < g->n; i++) {
		const struct dev_ref there = DEV_REF(to->buf, g->at[i] * 4),
				     from = DEV_REF(g->param[i]->grad, 0);
		const size_t count = g->at[i + 1] - g->at[i];
		TRY(into ? add_to(there, from, count, e) : dev_copy(there, from, count * 4, e));
		TRY(optim_zero_grad(g->param[i], e));
	}
	to->last = m + 1;
	if (!into) {
		to->first = m;
		g->nodes++;
	}
	while (g->nodes > 1 && siblings(&g->node[g->nodes - 2], g->node[g->nodes - 1].first,
					g->node[g->nodes - 1].last))
		TRY(merge(g, e));
	return 0;
}

/* The nodes from k on become one: a node of which the right part does not exist. */
static int fold(struct grads *g, size_t k, struct err *e)
{
	while (g->nodes > k + 1)
		TRY(merge(g, e));
	return 0;
}

/* Only the last term can be of several nodes: those before it are complete. */
int grads_close(struct grads *g, const struct sum_terms *t, int place, struct err *e)
{
	size_t k = 0;
	if (g->order != SUM_EXACT || !g->count)
		return 0;
	for (int i = 0; i < t->n; i++) {
		if (t->term[i].place != place)
			continue;
		if (t->term[i].last == t->microbatches)
			TRY(fold(g, k, e));
		if (k >= g->nodes || g->node[k].first != t->term[i].first ||
		    g->node[k].last != t->term[i].last)
			return err_set(e, ERR_INTERNAL, "gradients: term [%d, %d) was not made",
				       t->term[i].first, t->term[i].last);
		k++;
	}
	return k == g->nodes
		       ? 0
		       : err_set(e, ERR_INTERNAL, "gradients: %zu nodes, %zu terms", g->nodes, k);
}

int grads_finish(struct grads *g, struct err *e)
{
	if (g->order != SUM_EXACT || !g->nodes)
		return 0;
	TRY(fold(g, 0, e));
	for (size_t i = 0; i < g->n; i++)
		TRY(dev_copy(DEV_REF(g->param[i]->grad, 0), DEV_REF(g->node[0].buf, g->at[i] * 4),
			     (g->at[i + 1] - g->at[i]) * 4, e));
	g->nodes = 0;
	return 0;
}

/* Calls for each parameter that has some of the numbers: where they begin in it, how many, and how
 * many came before. */
static size_t param_at(const struct grads *g, size_t number)
{
	size_t lo = 0, hi = g->n;
	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;
		if (g->at[mid] <= number)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

int grads_download(const struct grads *g, size_t k, size_t first, size_t count, float *v,
		   struct err *e)
{
	if (!count)
		return 0;
	if (g->order == SUM_EXACT)
		return dev_download(v, DEV_REF(g->node[k].buf, first * 4), count * 4, e);
	for (size_t i = param_at(g, first), done = 0; done < count; i++) {
		size_t from = first + done - g->at[i], some = g->at[i + 1] - g->at[i] - from;
		some = some < count - done ? some : count - done;
		TRY(dev_download(v + done, DEV_REF(g->param[i]->grad, from * 4), some * 4, e));
		done += some;
	}
	return 0;
}

int grads_upload(struct grads *g, size_t first, size_t count, const float *v, struct err *e)
{
	for (size_t i = param_at(g, first), done = 0; done < count; i++) {
		size_t from = first + done - g->at[i], some = g->at[i + 1] - g->at[i] - from;
		some = some < count - done ? some : count - done;
		TRY(dev_upload(DEV_REF(g->param[i]->grad, from * 4), v + done, some * 4, e));
		done += some;
	}
	return 0;
}
