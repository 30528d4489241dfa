/* SPDX-License-Identifier: Apache-2.0 */
/* deal.c - see deal.h. */
#include "model/deal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int64_t deal_count(const struct expert_deal *d, int64_t layer, int place)
{
	int64_t n = 0;
	for (int64_t x = 0; x < d->experts; x++)
		n += deal_place(d, layer, x) == place;
	return n;
}

void deal_by_speed(int64_t from, int64_t experts, const double *speed, int places, uint8_t *place)
{
	double sum = 0, before = 0;
	int64_t x = from;
	int last = 0;
	for (int k = 0; k < places; k++)
		sum += speed[k];
	for (int k = 0; k < places; k++) {
		if (!(speed[k] > 0))
			continue;
		before += speed[k];
		last = k;
		const int64_t end = from + llround(before / sum * (double)(experts - from));
		for (; x < end && x < experts; x++)
			place[x] = (uint8_t)k;
	}
	while (x < experts)
		place[x++] = (uint8_t)last;
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
