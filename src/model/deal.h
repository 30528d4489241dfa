/* SPDX-License-Identifier: Apache-2.0 */
/* deal.h - which member of a stage's group has which experts, where they are on other members than
 * the rest of the layer. Pure.
 *
 * Homes are the members that run the stage's microbatches: they have everything but experts.
 * Members that have experts alone come behind them in the group. A home may have experts too. */
#ifndef HS_MODEL_DEAL_H
#define HS_MODEL_DEAL_H

#include <stdbool.h>
#include <stdint.h>

enum { DEAL_HOME = 255 }; /* every home has it */

struct expert_deal {
	int64_t layers, experts;
	/* [layers * experts] the place in the group of the layer's stage, or DEAL_HOME; NULL:
	 * nothing is dealt */
	const uint8_t *place;
};

/* Of layer `layer` of the model; of a dealt layer every expert has a place. */
static inline bool deal_has_layer(const struct expert_deal *d, int64_t layer)
{
	return d && d->place && d->place[layer * d->experts] != DEAL_HOME;
}
static inline int deal_place(const struct expert_deal *d, int64_t layer, int64_t expert)
{
	return d->place[layer * d->experts + expert];
}
/* How many experts of the layer a member has. */
int64_t deal_count(const struct expert_deal *d, int64_t layer, int place);
/* Of the parameter of this name; DEAL_HOME also where it is no expert's. */
int deal_place_of(const struct expert_deal *d, const char *name);
/* Deals the experts [from, experts) of a layer to `places`: one place after the other gets as much
 * of their load as of the sum of speed[places]. One of speed 0 gets none; one at least has more.
 * load[experts]: the share of the layer's rows that each expert gets (an expert that gets next to
 * none counts a little all the same, for it takes memory); NULL: equal ones. */
void deal_by_speed(int64_t from, int64_t experts, const double *load, const double *speed,
		   int places, uint8_t *place);

#endif
