/* SPDX-License-Identifier: Apache-2.0 */
/* planning.h - which layers where for this job: the configuration's own split (plan, shard_plan) or
 * a planner's, judged with a profile.
 *
 * The configuration fixes the mathematics (microbatches, gradient checkpointing where it is asked
 * for); a plan only distributes the work, and recomputes where a stage would not fit otherwise,
 * which changes no bit. */
#ifndef HS_TRAIN_PLANNING_H
#define HS_TRAIN_PLANNING_H

#include "plan/plan.h"
#include "job/config.h"
#include "proto/hello.h"
#include "job/job.h"
#include "job/placement.h"
#include "coord/seat.h"

struct err;

struct planning {
	struct profile profile;
	struct plan plan;
	struct plan_options options; /* options.manual: `manual`, when there is one */
	struct plan manual;
	const struct planner *planner;
};

/* What the configuration (NULL: nothing) asks of a planner; the caller may change p->options and
 * p->planner afterwards. ERR_USAGE names the key. */
int planning_options(struct planning *p, const struct config *c, struct err *e);
/* The user's own plan, if there is one: `file` (MAY be NULL), else the configuration's `plan` or
 * `shard_plan`; then the planner is `manual`. The profile is there already (p->profile). */
int planning_given(struct planning *p, const struct config *c, const char *file, struct err *e);
/* By name; ERR_USAGE with the names there are. */
int planning_planner(struct planning *p, const char *name, struct err *e);
/* Without measurements (profile: none): a profile in which all workers are equal and everything
 * fits, good for splits that need none. */
int planning_assume(struct planning *p, const struct job *j, const struct seat_spec *seat, int n,
		    struct err *e);
/* Makes p->plan; with `execute` it must be one that can be run today and fits into memory. */
int planning_run(struct planning *p, bool execute, struct err *e);
void planning_release(struct planning *p); /* profile included */
/* The plan as stages of the workers seat[0..n): worker[i] is the index of the one that gets stage i
 * (room for n). Allocated in `a`. ERR_USAGE when the plan names a device that is none of them. */
int planning_place(const struct planning *p, const struct seat_spec *seat,
		   const struct welcome *caps, int n, struct arena *a, struct placement *place,
		   int *worker, struct err *e);

/* DIR/plan.json and DIR/profile.json. */
int planning_write(const struct planning *p, const char *dir, struct err *e);

#endif
