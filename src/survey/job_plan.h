/* SPDX-License-Identifier: Apache-2.0 */
/* job_plan.h - the plan of a job, with the profile, the options and the planner that made it: the
 * split that the configuration gives (plan, shard_plan), or the one that a planner chooses.
 *
 * The configuration fixes the mathematics (microbatches, gradient checkpointing where it is asked
 * for); a plan only distributes the work, and recomputes where a stage would not fit otherwise,
 * which changes no bit. */
#ifndef HS_SURVEY_JOB_PLAN_H
#define HS_SURVEY_JOB_PLAN_H

#include "plan/plan.h"
#include "config/config.h"
#include "proto/hello.h"
#include "job/job.h"
#include "job/placement.h"
#include "coord/seat.h"

struct err;

struct job_plan {
	struct profile profile;
	struct plan plan;
	struct plan_options options; /* options.manual: `manual`, when there is one */
	struct plan manual;
	const struct planner *planner;
};

/* What the configuration (NULL: nothing) asks of a planner; the caller may change p->options and
 * p->planner afterwards. `ranks`: under mpirun or srun. */
void job_plan_options(struct job_plan *p, const struct config *c, bool ranks);
/* The user's own plan, if there is one: `file` (MAY be NULL), else the configuration's `plan` or
 * `shard_plan`; then the planner is `manual`. The profile must have been set (p->profile). */
int job_plan_given(struct job_plan *p, const struct config *c, const char *file, struct err *e);
/* Without measurements (profile: none): a profile in which all workers are equal and everything
 * fits, for splits that need no measurements. */
int job_plan_assume(struct job_plan *p, const struct job *j, const struct seat_spec *seat, int n,
		    struct err *e);
/* Makes p->plan; with `execute` it must be one that can be run today and fits into memory. */
int job_plan_make(struct job_plan *p, bool execute, struct err *e);
void job_plan_release(struct job_plan *p); /* profile included */
/* The plan of a model as rows (job/placement.h) of the workers seat[0..n): worker[k] is the index
 * of the one that gets row k (room for n). Allocated in `a`. ERR_USAGE when the plan names a device
 * that belongs to none of them. */
int job_plan_place(const struct job_plan *p, const struct model_config *model,
		   const struct seat_spec *seat, const struct welcome *caps, int n, struct arena *a,
		   struct placement *place, int *worker, struct err *e);

/* DIR/plan.json and DIR/profile.json. */
int job_plan_write(const struct job_plan *p, const char *dir, struct err *e);

#endif
