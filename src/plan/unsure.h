/* SPDX-License-Identifier: Apache-2.0 */
/* unsure.h - whether the measured speed of a device can be relied on. Pure. */
#ifndef HS_PLAN_UNSURE_H
#define HS_PLAN_UNSURE_H

#include <stdbool.h>
#include <stddef.h>

struct profile;

/* Why the speed of a device is unsure at m sequences a microbatch, as clauses separated by "; ". It
 * drifted, its runs differ, there were too few, a whole model did not take the sum of its parts, or
 * an equal device of the same machine was measured much faster or slower. machine: [devices], equal
 * numbers are one machine. false: nothing speaks against it. */
bool profile_unsure(const struct profile *p, int device, int m, const int *machine, char *why,
		    size_t cap);

#endif
