/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - the plan for changed speeds that is nearest to the one that runs: the same stages and
 * members in the same order, with other shares of microbatches in groups, or also with other
 * numbers of layers; and what it costs to go from one plan to another. Pure. */
#ifndef HS_PLAN_NEAR_H
#define HS_PLAN_NEAR_H

#include "plan/plan.h"

struct err;

/* What may change. */
enum plan_near { NEAR_NOTHING, NEAR_SHARES, NEAR_LAYERS };

/* The fastest that was found, simulated with `p`, whose devices have the names and numbers that
 * `now` uses. Stages with several chunks keep their layers, passes of several sizes their members.
 * *out is released by the caller. */
int plan_near(const struct profile *p, const struct plan_options *o, const struct plan *now,
	      enum plan_near what, struct plan *out, struct err *e);

/* Seconds that the step takes out of the run when `to` follows `from` (both of `p`): layers travel
 * over the slowest link of whoever gets them, every stage is built again, training state goes to
 * the coordinator and back. An estimate, meant to be corrected by what it took. */
double plan_move_seconds(const struct profile *p, const struct plan *from, const struct plan *to);

#endif
