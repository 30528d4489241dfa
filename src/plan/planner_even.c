/* SPDX-License-Identifier: Apache-2.0 */
/* planner_even.c - the same number of layers on every device, in the order of the profile: the
 * simplest planner, and the usual plan by hand. Microbatch size and recomputation are chosen so
 * that the plan fits and is fastest; layers are not moved to make it fit. */
#include <math.h>

#include "base/err.h"
#include "plan/search.h"

static int plan_even(const struct profile *p, const struct plan_options *o, struct plan *out,
		     struct err *e)
{
	struct search s;
	struct candidate k;
	int rc;

	TRY(search_init(&s, p, o, e));
	TRYOUT(candidate_init(&s, &k, e));
	k.stages = p->devices < p->layers ? p->devices : p->layers;
	for (int i = 0; i < k.stages; i++) {
		k.device[i] = i;
		k.layers[i] = p->layers / k.stages + (i < p->layers % k.stages);
	}
	k.sched = s.kind[0].sched;
	k.chunks = k.stages > 1 && p->layers / k.stages >= s.kind[0].chunks ? s.kind[0].chunks : 1;
	for (int i = 0; i < s.sizes; i++) {
		k.m = s.size[i];
		TRYOUT(search_offer(&s, &k, e));
	}
	k.m = s.size[0];
	rc = search_plan(&s, isinf(s.best.step_s) ? &k : &s.best, out, e);
out:
	search_release(&s);
	return rc;
}

const struct planner planner_even = {
	.name = "even",
	.help = "the same number of layers on every device",
	.plan = plan_even,
};
