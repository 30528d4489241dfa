/* SPDX-License-Identifier: Apache-2.0 */
/* plan_alone.h - the last lines of `plan --compare`: what each device would reach alone, the sum,
 * and the share of it that a plan reaches; all predicted. */
#ifndef HS_CLI_PLAN_ALONE_H
#define HS_CLI_PLAN_ALONE_H

#include "survey/job_plan.h"

struct err;

int plan_alone_print(const struct job_plan *j, const struct plan *best, struct err *e);
/* Ends the list of plans, and the object. */
int plan_alone_json(const struct job_plan *j, struct err *e);

#endif
