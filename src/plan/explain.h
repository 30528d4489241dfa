/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - a plan explained in sentences: what limits it, which plan is second best and why it
 * is slower, and for each device what the job would do without it (or with it, for a device that is
 * left out). */
#ifndef HS_PLAN_EXPLAIN_H
#define HS_PLAN_EXPLAIN_H

#include "plan/plan.h"

/* The best plan without a device that is used, or the best one found that uses a device
 * left out. */
struct plan_whatif {
	int device;
	bool used, possible; /* possible: such a plan exists and fits */
	double ms;
};

struct plan_rival {
	bool any;
	double ms;
	char what[160]; /* "the same devices, schedule gpipe" */
	char why[200];  /* why it is slower */
	int devices; /* how many it has, and the share of the step in which they compute nothing */
	double waits;
	/* where the plan has groups: the fastest without; pipeline_ms NAN: there is none */
	double pipeline_ms, pipeline_waits;
	int pipeline_devices;
	char pipeline_why[200];
};

/* One entry per device of the profile, by the default planner with the options of `plan`. `out` has
 * room for all devices. */
int plan_whatifs(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		 struct plan_whatif *out, struct err *e);
/* The fastest plan that differs in schedule, microbatch size, devices or layers: one of these
 * changed at a time. */
int plan_second_best(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		     struct plan_rival *out, struct err *e);

/* Sentences, one a line. `whatif` (one entry per device) and `rival` may be NULL. */
void plan_explain(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		  const struct plan_whatif *whatif, const struct plan_rival *rival,
		  struct buf *out);

#endif
