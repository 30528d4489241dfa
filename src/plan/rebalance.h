/* SPDX-License-Identifier: Apache-2.0 */
/* rebalance.h - whether work moves to other workers while a job runs, and which: the decision, as a
 * pure function of the profile with the speeds of now, the plan that runs and the steps left. When
 * to ask says drift.h.
 *
 * A plan must gain more than `gain` of the time of the next REBALANCE_STEPS steps (or of those
 * left), moving included. Of those that do, the one with the least time for these steps and its
 * moving; but other shares alone are taken where other layers would not gain that much more. */
#ifndef HS_PLAN_REBALANCE_H
#define HS_PLAN_REBALANCE_H

#include "plan/near.h"

struct err;

enum { REBALANCE_STEPS = 100 };

struct rebalance {
	const struct profile *p; /* with the speeds of now */
	const struct plan_options *o;
	const struct plan *now;
	/* may choose other stages; NULL: the user's plan, whose stages and members stay */
	const struct planner *planner;
	double gain;
	uint64_t left; /* steps */
	double moving; /* what moves took in this run, over what was estimated; 1: not known */
};

struct rebalance_answer {
	bool moves;
	bool shares;                    /* only shares change */
	struct plan plan;               /* when it moves; the caller's to release */
	double now_s, next_s, moving_s; /* a step with each plan; next_s, moving_s when it moves */
};

/* Whether any plan could pay, for steps that take so long now: false where moving alone takes
 * longer. Cheap. */
bool rebalance_may_pay(double step_s, double gain, uint64_t left, double moving_s);
int rebalance_choose(const struct rebalance *r, struct rebalance_answer *a, struct err *e);

#endif
