/* SPDX-License-Identifier: Apache-2.0 */
/* names.h - the registries whose rows a configuration or an option names. */
#ifndef HS_CONFIG_NAMES_H
#define HS_CONFIG_NAMES_H

#include "base/opt.h"

/* planner.def; sched.def and "auto"; optim.def; lr.def; model.def; prefer.def and "none" */
extern const struct opt_names names_planner, names_schedule, names_optimizer, names_curve,
	names_family, names_reduce, names_prefer, names_transport;

#endif
