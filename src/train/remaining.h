/* SPDX-License-Identifier: Apache-2.0 */
/* remaining.h - the plan of a job for those of its workers that are there now.
 *
 * Where the user wrote the plan (shard_plan) it stays as it is, without the others: a group goes on
 * with the rest of it, and the layers of a stage that nobody holds go to a spare worker, or in
 * equal parts to the stage before and the stage behind. There are as many spare workers as others
 * are missing. Where that does not fit into the measured memory, and where there is no such plan, a
 * planner chooses: the job's, or without measurements the even one.
 *
 * Two that do not reach each other are not put beside each other (crew/beside.h). Where that cannot
 * be one of the two is left out: the one without whom the rest is faster. */
#ifndef HS_TRAIN_REMAINING_H
#define HS_TRAIN_REMAINING_H

#include "crew/beside.h"
#include "survey/job_plan.h"

struct err;
struct trainer;

struct remaining {
	const struct job *job;
	const struct seat_spec *seat; /* [n] of all workers of the job */
	const bool *here;             /* [n] */
	int n;
	const char *profile;  /* of all of them, as JSON; NULL: nothing was measured */
	const double *slow;   /* [n] how many times as long each computes; NULL: as measured */
	enum sum_order order; /* of gradients: the run's */
	const struct beside *beside; /* who does not reach whom; NULL: all reach each other */
};

/* *p_p: zeros before. ERR_USAGE: nobody is there, or the model does not fit. */
int remaining_plan(const struct remaining *r, struct job_plan *p_p, struct err *e);
/* For who is there now. */
int remaining_plan_now(const struct trainer *t, struct job_plan *p_p, struct err *e);

#endif
