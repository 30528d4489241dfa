/* SPDX-License-Identifier: Apache-2.0 */
/* run_passes.h - the pass boundaries of a run and its plan: decided before the first step. */
#ifndef HS_TRAIN_RUN_PASSES_H
#define HS_TRAIN_RUN_PASSES_H

#include "job/job.h"
#include "job/placement.h"
#include "plan/plan.h"

struct err;

/* The passes of the plan become the job's, where it has none of its own. `resumed`: the job is a
 * checkpoint's, whose passes do not change. */
int run_passes_take(struct job *j, const struct plan *plan, bool resumed, struct err *e);
/* Passes of several sizes need one stage. */
int run_passes_check(const struct job *j, const struct placement *p, struct err *e);

#endif
