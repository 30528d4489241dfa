/* SPDX-License-Identifier: Apache-2.0 */
/* planner_exhaustive.c - every pipeline of single devices: every subset in every order, every
 * split of the layers, every schedule, number of chunks and microbatch size. It proves on small
 * cases that `best` finds the fastest pipeline, so it is written as simply as possible; larger
 * cases are refused.
 *
 * With the option `groups` also every grouping of the devices (best_groups.c).
 *
 * Its only shortcut: a split in which the work of one stage takes as long as the best plan so far
 * is not simulated. */
#include <math.h>

#include "base/err.h"
#include "plan/search.h"

#define MOST_PLANS 5e6

struct walk {
	struct search s;
	struct candidate k;
	bool *used;
};

static int try_splits(struct walk *w, int stage, int left, struct err *e)
{
	struct search *s = &w->s;

	if (stage + 1 < w->k.stages) {
		for (int n = 1; n <= left - (w->k.stages - 1 - stage); n++) {
			w->k.layers[stage] = n;
			TRY(try_splits(w, stage + 1, left - n, e));
		}
		return 0;
	}
	w->k.layers[stage] = left;
	for (int i = 0; i < s->sizes; i++) {
		const struct cost_row *r = cost_row(&s->c, s->size[i]);
		int M = s->p->global_batch / s->size[i];
		bool hopeless = false;

		for (int x = 0; x < w->k.stages && !hopeless; x++)
			hopeless = M * w->k.layers[x] *
					   (r->f[w->k.device[x]] + r->b[w->k.device[x]]) >=
				   s->best.step_s;
		if (hopeless)
			continue;
		w->k.m = s->size[i];
		for (int x = 0; x < s->kinds; x++) {
			w->k.sched = s->kind[x].sched;
			w->k.chunks = s->kind[x].chunks;
			TRY(search_offer(s, &w->k, e));
		}
	}
	return 0;
}

static int try_orders(struct walk *w, int stage, struct err *e)
{
	if (stage > 0) {
		w->k.stages = stage;
		TRY(try_splits(w, 0, w->s.p->layers, e));
	}
	if (stage == w->s.p->layers)
		return 0;
	for (int d = 0; d < w->s.p->devices; d++) {
		if (w->used[d])
			continue;
		w->used[d] = true;
		w->k.device[stage] = d;
		TRY(try_orders(w, stage + 1, e));
		w->used[d] = false;
	}
	return 0;
}

/* Orders of all subsets, times the ways to split the layers among that many. */
static double how_many(int devices, int layers)
{
	double all = 0, order = 1, split = 1;

	for (int k = 1; k <= devices && k <= layers; k++) {
		order *= devices - k + 1;
		if (k > 1)
			split *= (double)(layers - k + 1) / (k - 1);
		all += order * split;
	}
	return all;
}

/* `found`: what the pipelines came to, 0 for a plan in `out`. */
static int try_groups(const struct profile *p, const struct plan_options *o, struct plan *out,
		      int found, struct err *e)
{
	struct plan other = { .mem = ARENA_INIT, .over_device = -1 };
	struct err why = { 0 };
	bool any = found == 0;
	int rc = search_groups_all(p, o, &other, &why);
	if (rc < 0) {
		*e = why;
		return rc;
	}
	const bool some = rc == 1, many = rc == SEARCH_TOO_MANY;
	if (any)
		TRYOUT(plan_simulate(p, o, out, e));
	if (some)
		TRYOUT(search_faster(p, o, &other, out, &any, e));
	rc = any ? 0 : found;
	out->proven &= any && !many;
out:
	plan_release(&other);
	return rc;
}

static int plan_exhaustive(const struct profile *p, const struct plan_options *o, struct plan *out,
			   struct err *e)
{
	struct walk w;
	double many = how_many(p->devices, p->layers);
	int rc;

	TRY(search_init(&w.s, p, o, e));
	many *= (double)w.s.sizes * w.s.kinds;
	if (many > MOST_PLANS)
		TRYOUT(err_set(e, ERR_USAGE,
			       "exhaustive: %d devices and %d layers make %.2g plans with all "
			       "schedules and microbatch sizes, more than %.0g; use 'best'",
			       p->devices, p->layers, many, MOST_PLANS));
	TRYOUT(candidate_init(&w.s, &w.k, e));
	w.used = arena_alloc(&w.s.c.mem, (size_t)p->devices * sizeof *w.used);
	if (!w.used)
		TRYOUT(err_set(e, ERR_NOMEM, "out of memory for exhaustive search"));
	TRYOUT(try_orders(&w, 0, e));
	rc = isinf(w.s.best.step_s) ? search_nothing_fits(&w.s, e)
				    : search_plan(&w.s, &w.s.best, out, e);
	out->proven = rc == 0;
	if (o->groups && p->devices > 1)
		rc = try_groups(p, o, out, rc, e);
out:
	search_release(&w.s);
	return rc;
}

const struct planner planner_exhaustive = {
	.name = "exhaustive",
	.help = "every pipeline, and of the smallest clusters every group",
	.plan = plan_exhaustive,
};
