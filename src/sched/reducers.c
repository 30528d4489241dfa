/* SPDX-License-Identifier: Apache-2.0 */
/* reducers.c - the list of the rows of reduce.def. */
#include "sched/reduce.h"

#include "base/mem.h"

#include <string.h>

static const struct reducer *const rows[] = {
#define REDUCER(id) &reducer_##id,
#include "sched/reduce.def"
#undef REDUCER
};

const struct reducer *reducer_at(size_t i) { return i < ARRAY_LEN(rows) ? rows[i] : NULL; }

const struct reducer *reducer_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}
