/* SPDX-License-Identifier: Apache-2.0 */
/* grads.c - see grads.h. */
#include "engine/grads.h"

#include "base/err.h"
#include "base/mem.h"
#include "engine/hosted.h"
#include "optim/optim.h"

#include <limits.h>

static int part_of(const struct stage *s, const struct param *p, int parts, enum grads_of of)
{
	if (s->end && p == s->head)
		return GRADS_HEAD;
	return of == GRADS_REST && p->layer == INT_MAX ? GRADS_END
						       : stage_part_of(s, p->layer, parts);
}

static bool has_gradient(const struct param *p, enum grads_of of)
{
	return p->trainable && !p->away &&
	       (of == GRADS_ALL || (of == GRADS_EXPERTS) == (p->holder != DEAL_HOME));
}

/* Whether others own a part of it. */
static bool is_shared(const struct param *p) { return p->cut && p->members > 1; }

/* The parameters of this array whose elements member k owns; k < 0: those that nobody shares. */
static void add_runs(struct grads *g, struct stage *s, int part, int parts, enum grads_of of, int k)
{
	for (size_t i = s->nparam; i-- > 0;) {
		struct param *p = &s->param[i];
		if (!has_gradient(p, of) || part_of(s, p, parts, of) != part ||
		    (k < 0) == is_shared(p))
			continue;
		const size_t first = k < 0 ? 0 : (size_t)p->cut[k],
			     end = (size_t)(k < 0 ? param_count(p) : p->cut[k + 1]);
		if (first == end)
			continue;
		g->run[g->n++] = (struct grad_run){ p, first, end - first, g->count };
		g->count += end - first;
	}
}

int grads_init(struct grads *g, struct stage *s, int part, int parts, enum grads_of of,
	       enum sum_order o, struct err *e)
{
	size_t runs = 1;
	int members = 0;
	*g = (struct grads){ .dev = s->dev, .order = o };
	for (size_t i = 0; i < s->nparam; i++) {
		const struct param *p = &s->param[i];
		if (!has_gradient(p, of) || part_of(s, p, parts, of) != part)
			continue;
		members = is_shared(p) ? p->members : members;
		runs += is_shared(p) ? (size_t)p->members : 1;
	}
	g->run = mem_array(runs, sizeof *g->run);
	if (!g->run)
		return err_nomem(e, runs * sizeof *g->run, "the gradients of a stage");
	if (!members) {
		add_runs(g, s, part, parts, of, -1);
		return 0;
	}
	g->cut = mem_array((size_t)members + 1, sizeof *g->cut);
	if (!g->cut)
		return err_nomem(e, (size_t)members * sizeof *g->cut, "the gradients of a stage");
	for (int k = 0; k < members; k++) {
		g->cut[k] = g->count;
		add_runs(g, s, part, parts, of, k);
	}
	g->cut[members] = g->count;
	return 0;
}

void grads_release(struct grads *g)
{
	for (size_t k = 0; k < g->buffers; k++)
		dev_free(g->node[k].buf);
	mem_free(g->node);
	mem_free(g->run);
	mem_free(g->cut);
	*g = (struct grads){ 0 };
}

void grads_reset(struct grads *g) { g->nodes = 0; }

int grads_add_to(struct dev_ref to, struct dev_ref from, size_t count, struct err *e)
{
	const union dev_arg a[] = {
		{ .b = to }, { .b = from }, { .i = (int64_t)count }, { .f = 1 }, { .f = 1 }
	};
	return dev_launch(to.buf->dev, K_axpby, DT_F32, a, e);
}

/* A buffer of at least this size; NULL: there is none. */
static struct dev_buf *take_from(struct grad_pool *p, size_t bytes)
{
	for (size_t i = 0; p && i < p->n; i++) {
		struct dev_buf *b = p->buf[i];
		if (b->size < bytes)
			continue;
		p->buf[i] = p->buf[--p->n];
		return b;
	}
	return NULL;
}

int grads_give_back(struct grads *g, struct err *e)
{
	struct grad_pool *p = g->pool;
	if (!p)
		return 0;
	if (!mem_grow(&p->buf, &p->cap, p->n + g->buffers, sizeof *p->buf))
		return err_nomem(e, (p->n + g->buffers) * sizeof *p->buf, "gradients");
	for (size_t k = 0; k < g->buffers; k++)
		p->buf[p->n++] = g->node[k].buf;
	g->nodes = g->buffers = 0;
	return 0;
}

void grad_pool_release(struct grad_pool *p)
{
	for (size_t i = 0; i < p->n; i++)
		dev_free(p->buf[i]);
	mem_free(p->buf);
	*p = (struct grad_pool){ 0 };
}

/* A buffer behind the nodes in use. */
static int spare(struct grads *g, struct err *e)
{
	if (g->nodes < g->buffers)
		return 0;
	if (!mem_grow(&g->node, &g->cap, g->buffers + 1, sizeof *g->node))
		return err_nomem(e, (g->buffers + 1) * sizeof *g->node, "gradients");
	struct dev_buf *b = take_from(g->pool, g->count * 4);
	if (!b)
		TRY(dev_alloc(g->dev, g->count * 4, &b, e));
	g->node[g->buffers++] = (struct grad_node){ 0, 0, b };
	return 0;
}

/* Adds the last node to the one before it. */
static int merge(struct grads *g, struct err *e)
{
	struct grad_node *left = &g->node[g->nodes - 2], *right = left + 1;
	TRY(grads_add_to(DEV_REF(left->buf, 0), DEV_REF(right->buf, 0), g->count, e));
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
		const struct grad_run *r = &g->run[i];
		const struct dev_ref there = DEV_REF(to->buf, r->at * 4),
				     from = DEV_REF(r->param->grad, r->first * 4);
		TRY(into ? grads_add_to(there, from, r->count, e)
			 : dev_copy(there, from, r->count * 4, e));
		TRY(dev_zero(from, r->count * 4, e));
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

int grads_finish(struct grads *g, struct hosted *h, struct err *e)
{
	const bool nodes = g->order == SUM_EXACT;
	if (nodes && !g->nodes)
		return 0;
	if (nodes)
		TRY(fold(g, 0, e));
	for (size_t i = 0; i < g->n; i++) {
		const struct grad_run *r = &g->run[i];
		const struct dev_ref whole = DEV_REF(r->param->grad, r->first * 4);
		const struct dev_ref from = nodes ? DEV_REF(g->node[0].buf, r->at * 4) : whole;
		struct dev_buf *own = r->param->own_grad;
		if (own)
			TRY(r->param->hosted ? hosted_add(h, own->host, from, r->count * 4, e)
					     : dev_copy(DEV_REF(own, 0), from, r->count * 4, e));
		else if (nodes)
			TRY(dev_copy(whole, from, r->count * 4, e));
	}
	g->nodes = 0;
	return 0;
}

static size_t run_at(const struct grads *g, size_t number)
{
	size_t lo = 0, hi = g->n;
	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;
		if (g->run[mid].at <= number)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* Where the numbers of a run are, from `number` of the array on, and how many of `count`. */
static struct dev_ref some_of(const struct grad_run *r, size_t number, size_t count, size_t *some_p)
{
	const size_t in = number - r->at;
	*some_p = r->count - in < count ? r->count - in : count;
	return DEV_REF(r->param->grad, (r->first + in) * 4);
}

int grads_download(const struct grads *g, size_t k, size_t first, size_t count, float *v,
		   struct err *e)
{
	if (!count)
		return 0;
	if (g->order == SUM_EXACT)
		return dev_download(v, DEV_REF(g->node[k].buf, first * 4), count * 4, e);
	for (size_t i = run_at(g, first), done = 0, some; done < count; i++, done += some) {
		const struct dev_ref at = some_of(&g->run[i], first + done, count - done, &some);
		TRY(dev_download(v + done, at, some * 4, e));
	}
	return 0;
}

/* The same of where their sum goes: of a gathered or hosted one what is owned alone, which is this
 * run. */
static struct dev_ref sum_of(const struct grad_run *r, size_t number, size_t count, size_t *some_p)
{
	struct dev_ref at = some_of(r, number, count, some_p);
	if (r->param->own_grad) {
		at = param_grad(r->param);
		at.off += (number - r->at) * 4;
	}
	return at;
}

int grads_upload(struct grads *g, size_t first, size_t count, const float *v, struct err *e)
{
	for (size_t i = run_at(g, first), done = 0, some; done < count; i++, done += some) {
		const struct dev_ref at = sum_of(&g->run[i], first + done, count - done, &some);
		TRY(dev_upload(at, v + done, some * 4, e));
	}
	return 0;
}

int grads_copy(const struct grads *g, size_t k, size_t first, size_t count, struct dev_ref to,
	       struct err *e)
{
	if (g->order == SUM_EXACT)
		return dev_copy(to, DEV_REF(g->node[k].buf, first * 4), count * 4, e);
	for (size_t i = run_at(g, first), done = 0, some; done < count; i++, done += some) {
		const struct dev_ref at = some_of(&g->run[i], first + done, count - done, &some);
		TRY(dev_copy(DEV_REF(to.buf, to.off + done * 4), at, some * 4, e));
	}
	return 0;
}

int grads_take(struct grads *g, size_t first, size_t count, struct dev_ref from, struct err *e)
{
	for (size_t i = run_at(g, first), done = 0, some; done < count; i++, done += some) {
		const struct dev_ref at = sum_of(&g->run[i], first + done, count - done, &some),
				     v = DEV_REF(from.buf, from.off + done * 4);
		/* of a hosted one it is in the memory of the host */
		TRY(at.buf->dev == from.buf->dev
			    ? dev_copy(at, v, some * 4, e)
			    : dev_download((char *)at.buf->host + at.off, v, some * 4, e));
	}
	return 0;
}

/* ---- values ---- */

/* Of a replica the owner's are sent. */
static bool is_of(const struct grads *g, const struct grad_run *r, int k)
{
	return g->cut && r->at >= g->cut[k] && r->at < g->cut[k + 1] && !r->param->gathered &&
	       !r->param->replica;
}

static struct dev_ref value_of(const struct grad_run *r, size_t *bytes_p)
{
	const struct weight *w = &r->param->w;
	const size_t size = dtype_size(w->dtype);
	*bytes_p = r->count * size;
	return DEV_REF(w->data.buf, w->data.off + r->first * size);
}

size_t grads_values_size(const struct grads *g, int k)
{
	size_t all = 0, bytes;
	for (size_t i = 0; i < g->n; i++)
		if (is_of(g, &g->run[i], k)) {
			value_of(&g->run[i], &bytes);
			all += bytes;
		}
	return all;
}

int grads_values_get(const struct grads *g, int k, void *to, struct err *e)
{
	unsigned char *v = to;
	for (size_t i = 0, bytes; i < g->n; i++)
		if (is_of(g, &g->run[i], k)) {
			const struct dev_ref at = value_of(&g->run[i], &bytes);
			TRY(dev_download(v, at, bytes, e));
			v += bytes;
		}
	return 0;
}

int grads_values_put(struct grads *g, int k, const void *from, struct err *e)
{
	const unsigned char *v = from;
	for (size_t i = 0, bytes; i < g->n; i++)
		if (is_of(g, &g->run[i], k)) {
			const struct dev_ref at = value_of(&g->run[i], &bytes);
			TRY(dev_upload(at, v, bytes, e));
			v += bytes;
		}
	return 0;
}
