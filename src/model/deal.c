/* SPDX-License-Identifier: Apache-2.0 */
/* deal.c - see deal.h. */
#include "model/deal.h"

#include <stdio.h>
#include <string.h>

int64_t deal_count(const struct expert_deal *d, int64_t layer, int place)
{
	int64_t n = 0;
	for (int64_t x = 0; x < d->experts; x++)
		n += deal_place(d, layer, x) == place;
	return n;
}

int deal_place_of(const struct expert_deal *d, const char *name)
{
	static const char inside[] = ".experts.";
	const char *at = strstr(name, inside);
	long long layer, expert;
	if (!d || !d->place || !at || sscanf(name, "model.layers.%lld.", &layer) != 1 ||
	    sscanf(at + sizeof inside - 1, "%lld.", &expert) != 1 || layer < 0 ||
	    layer >= d->layers || expert < 0 || expert >= d->experts)
		return DEAL_HOME;
	return deal_place(d, layer, expert);
}
