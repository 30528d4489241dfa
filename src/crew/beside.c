/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - see beside.h. */
#include "crew/beside.h"

#include <string.h>

static const double never = 1e6; /* times as long as was measured: a link that does not exist */

static int number_of(const struct beside *r, const char *id)
{
	for (int i = 0; i < r->n; i++)
		if (!strcmp(r->id[i], id))
			return i;
	return -1;
}

static bool are_apart(const struct beside *r, int a, int b)
{
	return a >= 0 && b >= 0 && r->apart[(a < b ? a : b) * r->n + (a < b ? b : a)];
}

/* Workers of two stages that are beside each other, or of one. */
static bool stages_apart(const struct beside *r, const struct profile *of, const struct plan *p,
			 int a, int b, int pair[2])
{
	const struct plan_stage *v = &p->stage[a], *w = &p->stage[b];
	for (int i = 0; i < v->members; i++)
		for (int k = 0; k < w->members; k++) {
			pair[0] = number_of(r, of->device[v->member[i].device].id);
			pair[1] = number_of(r, of->device[w->member[k].device].id);
			if (are_apart(r, pair[0], pair[1]))
				return true;
		}
	return false;
}

bool beside_is(const struct beside *r, const struct profile *of, const struct plan *p, bool tied,
	       int pair[2])
{
	const int n = p->stages;
	for (int k = 0; r && k < n; k++)
		if (stages_apart(r, of, p, k, k, pair) ||
		    (k + 1 < n && stages_apart(r, of, p, k, k + 1, pair)))
			return true;
	return r && (p->chunks > 1 || tied) && n > 2 && stages_apart(r, of, p, n - 1, 0, pair);
}

void beside_cut(const struct beside *r, struct profile *p)
{
	for (int a = 0; r && a < r->n; a++)
		for (int b = a + 1; b < r->n; b++) {
			const int from = profile_find(p, r->id[a]);
			const int to = profile_find(p, r->id[b]);
			if (from < 0 || to < 0 || !are_apart(r, a, b) ||
			    p->device[from].host == p->device[to].host)
				continue;
			profile_slow_link(p, from, to, never);
			profile_slow_link(p, to, from, never);
		}
}

static bool entries_apart(const struct beside *r, const struct config_shard *a,
			  const struct config_shard *b)
{
	for (size_t i = 0; i < a->id.n; i++)
		for (size_t k = 0; k < b->id.n; k++)
			if (are_apart(r, number_of(r, a->id.item[i]), number_of(r, b->id.item[k])))
				return true;
	return false;
}

static void exchange_entries(struct config_shard *a, struct config_shard *b)
{
	const struct config_shard t = *a;
	a->id = b->id, a->share = b->share, a->state = b->state, a->size = b->size;
	b->id = t.id, b->share = t.share, b->state = t.state, b->size = t.size;
}

/* Puts entries of shard_plan in an order in which no such pair is beside each other: from `at` on,
 * the least change first. False: there is none (or it is not found soon); they are as before. */
static bool order_entries(const struct beside *r, struct config_shard *v, size_t n, size_t at,
			  int *tries)
{
	if (at == n)
		return true;
	for (size_t k = at; k<n && * tries> 0; k++, --*tries) {
		exchange_entries(&v[at], &v[k]);
		if (!(at && entries_apart(r, &v[at - 1], &v[at])) &&
		    order_entries(r, v, n, at + 1, tries))
			return true;
		exchange_entries(&v[at], &v[k]);
	}
	return false;
}

void beside_order(const struct beside *r, struct config_shard *v, size_t n)
{
	int tries = 5000;
	if (r)
		order_entries(r, v, n, 0, &tries);
}
