/* SPDX-License-Identifier: Apache-2.0 */
/* alone.h - each device by itself: what the same job takes there, beside a plan of several. Pure.
 *
 * Every figure is for the same global batch, so times of a step can be compared. */
#ifndef HS_PLAN_ALONE_H
#define HS_PLAN_ALONE_H

#include "plan/plan.h"

struct plan_alone {
	bool fits;
	double ms, tokens_per_s; /* of a step; NaN where it does not fit */
	char why[240];           /* it does not fit */
};

/* out[devices], by the default planner with the options of a plan of all. ERR_NOMEM. */
int plan_alone(const struct profile *p, const struct plan_options *o, struct plan_alone *out,
	       struct err *e);

/* What several reach beside each alone. */
struct plan_sum {
	double tokens_per_s; /* of all that fit alone */
	int fit, fastest;    /* how many; -1: none */
};
struct plan_sum plan_sum(const struct plan_alone *a, int n);

/* Where the time of a step goes, as shares of it: means over the devices in use. */
struct plan_lost {
	double busy, copy, wait, idle;
};
struct plan_lost plan_lost(const struct plan *plan);
/* "of the step the devices compute 61 %, wait for links 30 %, ...; links take most" */
void plan_lost_text(const struct plan_lost *l, char *s, size_t cap);

#endif
