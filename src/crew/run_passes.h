/* SPDX-License-Identifier: Apache-2.0 */
/* run_passes.h - the pass boundaries of a run and its plan: decided before the first step. */
#ifndef HS_CREW_RUN_PASSES_H
#define HS_CREW_RUN_PASSES_H

#include "job/job.h"
#include "job/placement.h"
#include "plan/plan.h"

struct err;

/* The passes of the plan become the job's, where it has none of its own. `resumed`: the job is a
 * checkpoint's, whose passes do not change. */
int run_passes_take(struct job *j, const struct plan *plan, bool resumed, struct err *e);
/* The passes of the job as options of a planner: those that have one size are a microbatch of that
 * size. `began`: the run has begun with them. */
void run_passes_options(const struct job *j, bool began, struct plan_options *o);
/* Passes of several sizes need one stage. */
int run_passes_check(const struct job *j, const struct placement *p, struct err *e);

#endif
