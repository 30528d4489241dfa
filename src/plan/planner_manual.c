/* SPDX-License-Identifier: Apache-2.0 */
/* planner_manual.c - the user's own plan (shard_plan of the configuration, or an edited plan.json),
 * used unchanged. */
#include <string.h>

#include "base/err.h"
#include "plan/plan.h"

static int plan_manual(const struct profile *p, const struct plan_options *o, struct plan *out,
		       struct err *e)
{
	const struct plan *in = o->manual;

	(void)p;
	if (!in)
		return err_set(e, ERR_USAGE,
			       "planner 'manual' needs a plan: a 'shard_plan' in the "
			       "configuration, or --plan FILE");
	TRY(plan_alloc(out, in->stages, in->chunks, e));
	out->sched = in->sched;
	out->offload = in->offload;
	if (!o->reducer && !o->collective) /* the job's own way of adding up comes first */
		out->reducer = in->reducer;
	out->microbatch = in->microbatch;
	out->microbatches = in->microbatches;
	memcpy(out->first, in->first, ((size_t)in->stages * (size_t)in->chunks + 1) * sizeof(int));
	for (int k = 0; k < in->stages; k++) {
		TRY(plan_stage_members(out, k, in->stage[k].members, e));
		out->stage[k].recompute = in->stage[k].recompute;
		out->stage[k].sharded = in->stage[k].sharded;
		TRY(plan_deal_experts(out, k, &in->stage[k], e));
		memcpy(out->stage[k].member, in->stage[k].member,
		       (size_t)in->stage[k].members * sizeof *out->stage[k].member);
	}
	return in->pass ? plan_set_passes(out, in->pass, in->microbatches, e) : 0;
}

const struct planner planner_manual = {
	.name = "manual",
	.help = "the plan you give",
	.needs_plan = true,
	.plan = plan_manual,
};
