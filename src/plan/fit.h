/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - a plan that does not fit into memory: by how much, and which keys of a configuration
 * would make it fit. Each key is tried with the cost model, alone, and where none suffices several
 * together. */
#ifndef HS_PLAN_FIT_H
#define HS_PLAN_FIT_H

#include "plan/plan.h"

/* ERR_USAGE: which device is too small, by how much, and what would make it fit. */
int plan_over_error(const struct profile *p, const struct plan_options *o, const struct plan *plan,
		    struct err *e);

#endif
