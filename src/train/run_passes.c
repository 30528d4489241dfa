/* SPDX-License-Identifier: Apache-2.0 */
/* run_passes.c - see run_passes.h. */
#include "train/run_passes.h"

#include "base/err.h"
#include "sched/sched.h"

int run_passes_take(struct job *j, const struct plan *plan, bool resumed, struct err *e)
{
	char mine[160], theirs[160];
	if (!plan->pass || j->pass) /* plan_read_text() has compared them */
		return 0;
	if (!resumed && !j->cfg->passes.n)
		return job_set_passes(j, plan->pass, (size_t)plan->microbatches, e);
	job_passes_text(j, mine, sizeof mine);
	sched_passes_text(plan->pass, (size_t)plan->microbatches, theirs, sizeof theirs);
	return err_set(e, ERR_USAGE,
		       "the plan has passes of %s rows, but %s %s: give both the same passes",
		       theirs, resumed ? "the run began with" : "'passes' says", mine);
}

int run_passes_check(const struct job *j, const struct placement *p, struct err *e)
{
	char text[160];
	if (!j->pass || p->stages == 1)
		return 0;
	job_passes_text(j, text, sizeof text);
	return err_set(e, ERR_USAGE,
		       "the run has passes of %s rows, which need one stage, and the plan has %d",
		       text, p->stages);
}
