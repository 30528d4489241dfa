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

enum { DIRECT_MOST = 4 /* members of a group that adds up directly, in the order SUM_FAST */ };

const struct reducer *reducer_default(enum sum_order o, int largest, bool collective)
{
	for (size_t i = 0; i < ARRAY_LEN(rows) && o == SUM_FAST && collective; i++)
		if (rows[i]->collective)
			return rows[i];
	return o == SUM_FAST && largest > DIRECT_MOST ? &reducer_ring : &reducer_direct;
}

const struct reducer *reducer_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}
