/* SPDX-License-Identifier: Apache-2.0 */
/* offload.c - see offload.h. */
#include "plan/offload.h"

#include "plan/cost_parts.h"

#include <stdio.h>
#include <string.h>

int plan_set_offload(const struct profile *p, struct plan *plan, unsigned offload, int max_chunks,
		     struct err *e)
{
	int layers[SCHED_MAX_STAGES];
	plan->offload = plan_can_offload(p) ? offload : 0;
	for (int k = 0; (plan->offload & OFFLOAD_ACTIVATIONS) && k < plan->stages; k++)
		plan->stage[k].recompute = true;
	if (!plan_is_layerwise(p, offload) || plan->stages > SCHED_MAX_STAGES)
		return 0;
	for (int k = 0; k < plan->stages; k++)
		layers[k] = plan_layers(plan, k);
	int chunks = plan_offload_chunks(plan->stages, layers, max_chunks);
	if (plan->chunks > 1 && plan->sched->gathers)
		chunks = plan->chunks;
	return plan_cut_layers(plan, chunks, plan->offload & OFFLOAD_PARAMETERS, e);
}

bool plan_is_layerwise(const struct profile *p, unsigned offload)
{
	return (offload & (OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS)) && plan_can_offload(p);
}

int plan_offload_chunks(int stages, const int *layers, int max_chunks)
{
	int most = stages > 1 ? max_chunks : SCHED_MAX_CHUNKS;
	for (int k = 0; k < stages; k++)
		most = layers[k] < most ? layers[k] : most;
	return most;
}

bool plan_can_offload(const struct profile *p)
{
	for (int i = 0; i < p->devices; i++)
		if (!p->device[i].on_host)
			return true;
	return false;
}

unsigned plan_offload_at(const struct profile *p, int k)
{
	static const unsigned full[] = { OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS,
					 OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS,
					 OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS |
						 OFFLOAD_ACTIVATIONS,
					 0 };
	static const unsigned adapters[] = { OFFLOAD_ACTIVATIONS, OFFLOAD_PARAMETERS,
					     OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS, 0 };
	static const unsigned experts[] = {
		OFFLOAD_EXPERTS,    OFFLOAD_EXPERTS | OFFLOAD_ACTIVATIONS,    OFFLOAD_ACTIVATIONS,
		OFFLOAD_PARAMETERS, OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS, 0
	};
	return cost_trains_all(p) ? full[k] : p->expert_gib > 0 ? experts[k] : adapters[k];
}

void plan_offload_text(unsigned offload, char *out, size_t n)
{
	static const char *const name[] = { "activations", "optimizer", "parameters", "experts" };
	size_t at = (size_t)snprintf(out, n, "[");
	for (int i = 0; i < 4; i++)
		if (offload & (1u << i) && at < n)
			at += (size_t)snprintf(out + at, n - at, "%s%s", at > 1 ? ", " : "",
					       name[i]);
	if (at < n)
		snprintf(out + at, n - at, "]");
}
