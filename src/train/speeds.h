/* SPDX-License-Identifier: Apache-2.0 */
/* speeds.h - the speeds of workers and links while the job runs: what each step says about them
 * goes to plan/drift.h, and where plan/rebalance.h finds a plan that pays, work moves. Without
 * measured devices the first steps of a plan are what later ones are compared with, and slow
 * workers are only named. */
#ifndef HS_TRAIN_SPEEDS_H
#define HS_TRAIN_SPEEDS_H

#include "train/trainer.h"

struct err;

/* A plan that is better now, and why. */
struct speeds_move {
	struct job_plan plan; /* the caller's to release */
	char why[400];        /* "'b' computes 3.1 times as long as the plan expects" */
	bool shares;          /* only shares of groups change */
	double now_s;         /* seconds a step with the plan that runs */
	double estimate;      /* seconds of moving, as plan_move_seconds() says */
};

/* Once, when workers have joined. */
int speeds_begin(struct trainer *t, struct err *e);
void speeds_end(struct trainer *t);
/* Another plan begins, made for the levels of now. */
void speeds_plan(struct trainer *t);
/* After each step. */
void speeds_step(struct trainer *t, uint64_t tokens, double seconds);
/* Between two steps: says what became slow. 1: work is to move, *m is filled in; 0: not. */
int speeds_look(struct trainer *t, struct speeds_move *m, struct err *e);

#endif
