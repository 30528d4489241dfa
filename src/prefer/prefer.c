/* SPDX-License-Identifier: Apache-2.0 */
/* prefer.c - the list of losses. */
#include "prefer/prefer.h"

#include "base/mem.h"

#include <string.h>

#define PREFER(name) extern const struct prefer prefer_##name;
#include "prefer/prefer.def"
#undef PREFER

static const struct prefer *const rows[] = {
#define PREFER(name) &prefer_##name,
#include "prefer/prefer.def"
#undef PREFER
};

const struct prefer *prefer_at(size_t i) { return i < ARRAY_LEN(rows) ? rows[i] : NULL; }

const struct prefer *prefer_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}
