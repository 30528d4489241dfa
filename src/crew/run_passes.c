/* SPDX-License-Identifier: Apache-2.0 */
/* run_passes.c - see run_passes.h. */
#include "crew/run_passes.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/own.h"
#include "sched/sched.h"

/* The rows of all passes, where they are equal; 0: they are not. */
static int one_size(const struct job *j)
{
	for (size_t i = 1; i < j->npass; i++)
		if (j->pass[i] != j->pass[0])
			return 0;
	return j->npass ? j->pass[0] : (int)j->cfg->micro_batch_size;
}

void run_passes_options(const struct job *j, bool began, struct plan_options *o)
{
	const int m = one_size(j);
	o->keep_passes = began;
	o->pass = m ? NULL : j->pass;
	o->passes = m ? 0 : (int)j->npass;
	if (m)
		o->microbatch = m;
}

static int take(struct job *j, const struct plan *plan, const int *pass, bool resumed,
		struct err *e)
{
	char mine[160], theirs[160];
	if (!resumed && !j->cfg->passes.n)
		return job_set_passes(j, pass, (size_t)plan->microbatches, e);
	job_passes_text(j, mine, sizeof mine);
	sched_passes_text(pass, (size_t)plan->microbatches, theirs, sizeof theirs);
	return err_set(e, ERR_USAGE,
		       "the plan has passes of %s rows, but %s %s: give both the same passes",
		       theirs, resumed ? "the run began with" : "'passes' says", mine);
}

int run_passes_take(struct job *j, const struct plan *plan, bool resumed, struct err *e)
{
	if (plan->pass) /* plan_read_text() has compared them */
		return j->pass ? 0 : take(j, plan, plan->pass, resumed, e);
	if (plan->microbatch == one_size(j) || (j->pass && !one_size(j)))
		return 0;
	int *all = mem_array((size_t)plan->microbatches, sizeof *all);
	if (!all)
		return err_nomem(e, (size_t)plan->microbatches * sizeof *all, "passes");
	for (int i = 0; i < plan->microbatches; i++)
		all[i] = plan->microbatch;
	int rc = take(j, plan, all, resumed, e);
	mem_free(all);
	return rc;
}

int run_passes_check(const struct job *j, const struct placement *p, struct err *e)
{
	char text[160];
	const struct own_kind *batch = own_of_batches(&j->model.own);
	if (!j->pass || one_size(j) || (p->stages == 1 && !batch))
		return 0;
	job_passes_text(j, text, sizeof text);
	if (batch)
		return err_set(
			e, ERR_USAGE,
			"'%s' is over the rows of a pass, and the run has passes of %s rows: "
			"give all of them the same (micro_batch_size)",
			batch->name, text);
	return err_set(e, ERR_USAGE,
		       "the run has passes of %s rows, which need one stage, and the plan has %d",
		       text, p->stages);
}
