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

/* What an expert counts when a layer is dealt. */
static double weight(const double *load, int64_t experts, int64_t x)
{
	const double even = 1 / (double)experts;
	return load ? fmax(load[x], even / 16) : even;
}

static int next_place(const double *speed, int places, int k)
{
	while (k + 1 < places && !(speed[k + 1] > 0))
		k++;
	return k + 1;
}

void deal_by_speed(int64_t from, int64_t experts, const double *load, const double *speed,
		   int places, uint8_t *place)
{
	double speeds = 0, loads = 0, done = 0, end;
	int k = next_place(speed, places, -1);
	for (int i = 0; i < places; i++)
		speeds += speed[i];
	for (int64_t x = from; x < experts; x++)
		loads += weight(load, experts, x);
	end = speed[k] / speeds;
	for (int64_t x = from; x < experts; x++) {
		const double w = weight(load, experts, x);
		/* the one in which its middle lies */
		for (int next; (done + w / 2) / loads > end + 1e-9 &&
			       (next = next_place(speed, places, k)) < places;
		     end += speed[k] / speeds)
			k = next;
		place[x] = (uint8_t)k;
		done += w;
	}
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
