/* SPDX-License-Identifier: Apache-2.0 */
/* plan_cut.c - which layers and which training state the members of a plan have; see plan.h. */
#include "plan/cost.h"

#include "base/err.h"

int plan_layers(const struct plan *plan, int stage)
{
	int n = 0;

	for (int c = 0; c < plan->chunks; c++) {
		int v = c * plan->stages + stage;
		n += plan->first[v + 1] - plan->first[v];
	}
	return n;
}

void plan_share_state(const struct profile *p, const struct plan_options *o, struct plan_stage *s)
{
	double all = 0;
	for (int i = 0; s->members > 1 && i < s->members; i++)
		all += profile_limit_gib(p, s->member[i].device, o->reserve_gib);
	for (int i = 0; s->members > 1 && i < s->members; i++)
		s->member[i].state_share =
			all > 0 ? profile_limit_gib(p, s->member[i].device, o->reserve_gib) / all
				: 1.0 / s->members;
}

int plan_most_chunks(const struct plan *plan)
{
	int least = SCHED_MAX_CHUNKS;
	for (int k = 0; k < plan->stages; k++)
		least = plan_layers(plan, k) < least ? plan_layers(plan, k) : least;
	return least;
}

int plan_cut_layers(struct plan *plan, int chunks, bool shard, struct err *e)
{
	const size_t all = (size_t)plan->stages * (size_t)chunks + 1;
	int *layers = arena_alloc(&plan->mem, (size_t)plan->stages * sizeof *layers),
	    *first = arena_alloc(&plan->mem, all * sizeof *first);
	if (!layers || !first)
		return err_set(e, ERR_NOMEM, "out of memory for a plan");
	for (int k = 0; k < plan->stages; k++) {
		layers[k] = plan_layers(plan, k);
		plan->stage[k].sharded |= shard && plan->stage[k].members > 1;
	}
	cost_cut(plan->stages, chunks, layers, first);
	plan->first = first;
	plan->chunks = chunks;
	plan->sched = &sched_breadth_first;
	return 0;
}
