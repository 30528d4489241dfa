/* SPDX-License-Identifier: Apache-2.0 */
/* planner_best.c - the default: the fastest plan that was found under the simulator, within every
 * memory limit.
 *
 * 1. The plans of the simple planners (even, proportional) as first answers, so it is never slower
 *    than they are.
 * 2. Heuristics (best_local.c) for any size of cluster.
 * 3. Branch and bound (best_exact.c) with what was found as the bound; where it ends within its
 *    budget the plan is proven to be the fastest pipeline (`proven`).
 * 4. With the option `groups`: the published planners' plans that can be executed, and groups of
 *    devices (best_groups.c); used when the simulator finds them faster.
 * 5. Of a plan with groups the shares of computing and of training state (best_polish.c).
 *
 * Effort is counted in simulated instructions and search nodes, never in seconds: the same input
 * gives the same plan on any machine. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "plan/experts.h"
#include "plan/search.h"

/* simulated instructions of the heuristics; branch and bound gets a part of it that depends
 * on the size */
#define EFFORT 20000000

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

/* Whether its microbatches have the rows that they must have. */
static bool keeps_sizes(const struct plan_options *o, const struct plan *plan)
{
	for (int k = 0; o->microbatch > 0 && k < plan->stages; k++)
		for (int i = 0; i < plan->stage[k].members; i++)
			if (plan->stage[k].member[i].microbatch != o->microbatch || plan->pass)
				return false;
	return true;
}

/* Cephalo's microbatches, of each device a size of its own, without sharing anything. */
static void unshard(const struct plan_options *o, struct plan *plan)
{
	const int layers = plan_layers(plan, 0);
	plan->chunks = 1;
	plan->first[1] = layers;
	plan->sched = sched_default();
	plan->stage[0].sharded = false;
	plan->stage[0].recompute = o->recompute == PLAN_RECOMPUTE_ALWAYS;
	for (int i = 0; i < plan->stage[0].members; i++)
		plan->stage[0].member[i].state_share = 1;
}

/* The published planners' groups, those of Cephalo unsharded, and those of best_groups.c. */
static int consider_groups(const struct profile *p, const struct plan_options *o, int64_t effort,
			   struct plan *out, bool *found, struct err *e)
{
	const struct planner *published[] = { &planner_cephalo, &planner_cephalo, &planner_zorse };
	int rc = 0;

	for (int i = 0; i < 4 && rc == 0; i++) {
		struct plan other = { .mem = ARENA_INIT, .over_device = -1 };
		if (i < 3 && o->offload)
			continue;
		rc = i < 3 ? published[i]->plan(p, o, &other, e)
			   : search_groups(p, o, *found ? out : NULL, effort, &other, e);
		if (rc == 0 && i == 1)
			unshard(o, &other);
		if (rc == 0 && i < 3 && !keeps_sizes(o, &other))
			rc = 0;
		else if (rc == (i < 3 ? 0 : 1))
			rc = search_faster(p, o, &other, out, found, e);
		else if (rc != ERR_NOMEM && rc != ERR_INTERNAL)
			rc = 0; /* it finds no plan for this profile */
		plan_release(&other);
		if (rc == 0)
			err_clear(e);
	}
	return rc;
}

static int consider_many(const struct profile *p, const struct plan_options *o, int64_t effort,
			 struct plan *out, bool *found, struct err *e)
{
	struct plan other = { .mem = ARENA_INIT, .over_device = -1 };
	int rc = search_many(p, o, effort, &other, e);
	if (rc == 1)
		rc = search_faster(p, o, &other, out, found, e);
	plan_release(&other);
	return rc;
}

static int polish_groups(const struct profile *p, const struct plan_options *o, int64_t effort,
			 struct plan *out, struct err *e)
{
	for (int k = 0; k < out->stages; k++)
		if (out->stage[k].members > 1)
			return search_polish(p, o, effort, out, e);
	return 0;
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
	if (o->groups && p->devices > 1 && found)
		TRYOUT(plan_simulate(p, o, out, e));
	if (o->groups && p->devices > 1 && p->devices <= SEARCH_GROUPED)
		TRYOUT(consider_groups(p, o, effort / 4, out, &found, e));
	else if (o->groups && p->devices > 1 && !o->offload)
		TRYOUT(consider_many(p, o, effort / 4, out, &found, e));
	rc = found ? polish_groups(p, o, effort / 20, out, e) : 0;
	if (rc >= 0)
		rc = plan_try_experts(p, o, out, e);
	if (rc >= 0 && !out->stages)
		rc = search_nothing_fits(&s, e);
out:
	search_release(&s);
	return rc;
}

const struct planner planner_best = {
	.name = "best",
	.help = "the fastest plan found under the simulator",
	.chooses_rest = true,
	.plan = plan_best,
};
