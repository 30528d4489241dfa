/* SPDX-License-Identifier: Apache-2.0 */
/* plan_trace.h - the simulated timeline of a plan, in the format of a run's trace.json (trace.h),
 * with the same streams, so that the two can be compared. A send is the time on the wire, a wait
 * the time in which a stage was blocked. */
#ifndef HS_REPORT_PLAN_TRACE_H
#define HS_REPORT_PLAN_TRACE_H

#include "plan/plan.h"

int plan_trace_write(const struct profile *p, const struct plan_options *o, struct plan *plan,
		     const char *path, struct err *e);

#endif
