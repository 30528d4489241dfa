/* SPDX-License-Identifier: Apache-2.0 */
/* routing.h - the routing of a job's mixture of experts, measured for its profile. */
#ifndef HS_SURVEY_ROUTING_H
#define HS_SURVEY_ROUTING_H

#include "job/job.h"
#include "plan/profile.h"

/* Where there are several devices: runs some tokens of the job's data through its model, on this
 * machine's processor, and stores how they spread over experts. Half a minute at most, but for the
 * layer that it is at; what fails is a warning, and the plan then takes routing for even. */
void routing_measure(const struct job *j, struct profile *p);

#endif
