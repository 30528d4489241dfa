/* SPDX-License-Identifier: Apache-2.0 */
/* planner_best.c - the default: the fastest plan that was found under the simulator, within every
 * memory limit.
 *
 * 1. The plans of the simple planners (even, proportional) as first answers, so it is never slower
 *    than they are.
 * 2. Heuristics (best_local.c) for any size of cluster.
 * 3. Branch and bound (best_exact.c) with what was found as the bound; where it ends within its
 *    budget the plan is proven to be the fastest pipeline (`proven`).
 * 4. With the option `groups`: the published planners, and some simple groups; used when the
 *    simulator finds them faster. Off by default: sharded groups cannot be executed today, and few
 *    groups are tried.
 *
 * Effort is counted in simulated instructions and search nodes, never in seconds: the same input
 * gives the same plan on any machine. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "plan/search.h"

/* simulated instructions of the heuristics; branch and bound gets a part of it that depends
 * on the size */
#define EFFORT 20000000
enum { GROUPS_MOST = 64 };

/* A plan of single devices as a candidate. */
static int offer_plan(struct search *s, const struct plan *plan, struct candidate *k, struct err *e)
{
	if (plan->stages > s->p->devices)
		return 0;
	k->sched = plan->sched;
	k->stages = plan->stages;
	k->chunks = plan->chunks;
	k->m = plan->microbatch;
	for (int i = 0; i < plan->stages; i++) {
		if (plan->stage[i].members != 1 || plan->stage[i].sharded)
			return 0;
		k->device[i] = plan->stage[i].member[0].device;
		k->layers[i] = plan_layers(plan, i);
	}
	return search_offer(s, k, e);
}

static int offer_row(struct search *s, const struct planner *row, struct candidate *k,
		     struct err *e)
{
	struct plan plan = { .mem = ARENA_INIT };
	int rc = row->plan(s->p, s->o, &plan, e);

	if (rc == 0)
		rc = offer_plan(s, &plan, k, e);
	else if (rc != ERR_NOMEM && rc != ERR_INTERNAL)
		rc = 0; /* it finds no plan for this profile */
	plan_release(&plan);
	if (rc == 0)
		err_clear(e);
	return rc;
}

/* ---- groups ---- */

/* One group of all devices, or one of each host's, microbatches by speed; weights on every device,
 * or sharded. */
static int group_plan(const struct profile *p, const struct plan_options *o, int m, bool by_host,
		      bool sharded, struct plan *out, struct err *e)
{
	int M = p->global_batch / m, stages = 0, at = 0, of[PROFILE_MAX_DEVICES];
	double speed[PROFILE_MAX_DEVICES] = { 0 }, all = 0;
	(void)o;

	for (int h = 0; h < p->hosts; h++) {
		bool any = false;
		of[h] = stages;
		for (int i = 0; i < p->devices; i++)
			if (p->device[i].host == h) {
				any = true;
				speed[stages] += 1 / (curve_at(&p->device[i].forward_ms, m) +
						      curve_at(&p->device[i].backward_ms, m));
			}
		stages += any && by_host;
	}
	if (!by_host)
		stages = 1;
	if (stages > p->layers)
		return ERR_USAGE;
	for (int k = 0; k < stages; k++)
		all += speed[k];
	TRY(plan_alloc(out, stages, 1, e));
	out->sched = sched_default();
	out->microbatch = m;
	out->microbatches = M;
	for (int k = 0; k < stages; k++) {
		int n = 0, i = 0, left = M, layers = (int)(p->layers * speed[k] / all + 0.5),
		    rest = stages - 1 - k;
		for (int d = 0; d < p->devices; d++)
			n += !by_host || of[p->device[d].host] == k;
		TRY(plan_stage_members(out, k, n, e));
		out->stage[k].sharded = out->stage[k].recompute = sharded && n > 1;
		for (int d = 0; d < p->devices; d++) {
			struct plan_member *x = &out->stage[k].member[i];
			if (by_host && of[p->device[d].host] != k)
				continue;
			x->device = d;
			x->microbatch = m;
			x->state_share = sharded ? 1.0 / n : 1;
			x->microbatches = (int)(M /
						(curve_at(&p->device[d].forward_ms, m) +
						 curve_at(&p->device[d].backward_ms, m)) /
						speed[k]);
			left -= x->microbatches;
			i++;
		}
		/* the remainder goes to the device that ends first */
		for (; left > 0; left--) {
			int pick = 0;
			double least = INFINITY;
			for (i = 0; i < n; i++) {
				struct plan_member *x = &out->stage[k].member[i];
				double t = (x->microbatches + 1) *
					   (curve_at(&p->device[x->device].forward_ms, m) +
					    curve_at(&p->device[x->device].backward_ms, m));
				if (t < least) {
					least = t;
					pick = i;
				}
			}
			out->stage[k].member[pick].microbatches++;
		}
		if (layers < 1)
			layers = 1;
		if (layers > p->layers - at - rest || rest == 0)
			layers = p->layers - at - rest;
		out->first[k] = at;
		at += layers;
	}
	out->first[stages] = at;
	return 0;
}

/* Keeps the faster of two plans in `out`. */
static int take_faster(const struct profile *p, const struct plan_options *o, struct plan *other,
		       struct plan *out, bool *found, struct err *e)
{
	int rc = plan_check(p, other, e);

	if (rc < 0)
		return rc == ERR_NOMEM ? rc : 0;
	TRY(plan_simulate(p, o, other, e));
	if (!other->fits || (*found && other->simulated_ms >= out->simulated_ms) ||
	    (o->must_use >= 0 && !plan_uses(other, o->must_use)))
		return 0;
	other->planner = out->planner;
	other->predicted_ms = other->objective_ms = NAN;
	other->examined = out->examined;
	other->proven = false;
	arena_release(&out->mem);
	*out = *other;
	*other = (struct plan){ .mem = ARENA_INIT };
	*found = true;
	return 0;
}

static int consider_groups(const struct profile *p, const struct plan_options *o, struct plan *out,
			   bool *found, struct err *e)
{
	const struct planner *published[] = { &planner_cephalo, &planner_zorse };
	int size[SEARCH_MAX_SIZES], sizes = cost_microbatches(p, o, size, SEARCH_MAX_SIZES), rc = 0;

	for (int i = 0; i < 2 + 4 * sizes && rc == 0; i++) {
		struct plan other = { .mem = ARENA_INIT, .over_device = -1 };
		int at = i - 2;
		rc = i < 2 ? published[i]->plan(p, o, &other, e)
			   : group_plan(p, o, size[at / 4], at & 1, at & 2, &other, e);
		if (rc == 0)
			rc = take_faster(p, o, &other, out, found, e);
		else if (rc != ERR_NOMEM && rc != ERR_INTERNAL)
			rc = 0; /* it finds no plan for this profile */
		plan_release(&other);
		if (rc == 0)
			err_clear(e);
	}
	return rc;
}

static int plan_best(const struct profile *p, const struct plan_options *o, struct plan *out,
		     struct err *e)
{
	struct search s;
	struct candidate k;
	bool complete = false, found = false;
	int64_t effort = o->effort > 0 ? o->effort : EFFORT;
	int rc;

	TRY(search_init(&s, p, o, e));
	TRYOUT(candidate_init(&s, &k, e));
	TRYOUT(offer_row(&s, &planner_even, &k, e));
	TRYOUT(offer_row(&s, &planner_proportional, &k, e));
	TRYOUT(search_heuristic(&s, effort, e));
	TRYOUT(search_exact(&s,
			    p->devices <= 6    ? effort / 2
			    : p->devices <= 10 ? effort / 20
					       : effort / 200,
			    &complete, e));
	found = !isinf(s.best.step_s);
	if (found) {
		TRYOUT(search_plan(&s, &s.best, out, e));
		out->proven = complete;
	}
	if (o->groups && p->devices > 1 && p->devices <= GROUPS_MOST) {
		if (found)
			TRYOUT(plan_simulate(p, o, out, e));
		TRYOUT(consider_groups(p, o, out, &found, e));
	}
	if (!found)
		rc = search_nothing_fits(&s, e);
out:
	search_release(&s);
	return rc;
}

const struct planner planner_best = {
	.name = "best",
	.help = "the fastest plan found under the simulator",
	.plan = plan_best,
};
