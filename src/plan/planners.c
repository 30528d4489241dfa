/* SPDX-License-Identifier: Apache-2.0 */
/* planners.c - the list of planners: the rows of planner.def. */
#include "plan/plan.h"

#include "base/mem.h"

#include <string.h>

static const struct planner *const rows[] = {
#define PLANNER(id) &planner_##id,
#include "plan/planner.def"
#undef PLANNER
};

const struct planner *planner_at(size_t i) { return i < ARRAY_LEN(rows) ? rows[i] : NULL; }

const struct planner *planner_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}

const struct planner *planner_default(void) { return &planner_best; }
