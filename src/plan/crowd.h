/* SPDX-License-Identifier: Apache-2.0 */
/* crowd.h - devices that compute on the same cores of a machine.
 *
 * A device that computes with q threads on a set of C cores lays q / C on each of them; the load L
 * of a device is the mean over its cores of what lies on them, where each other device counts for
 * the part of this one's time of computing in which that one computes too. Above one, L is how much
 * longer it computes. Devices of a machine are measured at the same time, so measured times have
 * the L at which all compute always; pace is the ratio of the two. */
#ifndef HS_PLAN_CROWD_H
#define HS_PLAN_CROWD_H

#include "plan/profile.h"
#include "sched/play.h"

/* Whether devices were measured slower than they are alone. */
bool crowd_any(const struct profile *p);
/* After a play with spans, of which member i is device[i]: what to multiply the measured times of
 * each device with, pace_p[devices]. */
int crowd_pace(const struct profile *p, const struct play_result *res, const int *device,
	       double *pace_p, struct err *e);

#endif
