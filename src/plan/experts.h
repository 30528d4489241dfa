/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h - plans in which experts are on other devices than the rest of their layers.
 *
 * Letters as in cost.h, of a layer and a microbatch: x what experts take of f and b on a device,
 * all rows being there; w the share of rows whose experts a member has, by the measured routing of
 * the layer where there is one (profile.h), else by their number.
 *   home    ROUTE f - x, BACK_ROUTE b - x; its own experts w x
 *   others  EXPERTS w x of their device
 *   rows    w m T K C wire_bytes there and as many back; the same for gradients
 *   memory  of a layer's weights and state those of the experts are divided as the experts are; of
 *           what a layer keeps, a home has all and another member w */
#ifndef HS_PLAN_EXPERTS_H
#define HS_PLAN_EXPERTS_H

#include "plan/cost.h"

/* Fills times, shares and memory of such a plan; `fn` MAY be NULL. */
int plan_play_experts(struct cost *c, const struct cost_row *r, struct plan *plan, plan_span_fn fn,
		      void *ctx, struct err *e);
/* After a search: replaces `best` by such a plan where one is faster (best_experts.c). */
int plan_try_experts(const struct profile *p, const struct plan_options *o, struct plan *best,
		     struct err *e);
/* The share of a stage's experts that member i has, over its layers. */
double plan_expert_share(const struct plan *plan, int stage, int i);
/* The first and the last layer of the model, of a stage, that has experts behind the homes; false:
 * there is none. */
bool plan_experts_away(const struct plan *plan, int stage, int *from_p, int *to_p);
/* Of a layer's rows, those of the experts that member i has. */
double plan_expert_load(const struct profile *p, const struct plan *plan, int stage, int layer,
			int i);
/* ERR_USAGE: which device such a plan asks too much of. */
int plan_experts_over(const struct profile *p, const struct plan *plan, struct err *e);
/* Whether enough is known of the devices to plan with experts elsewhere. */
bool plan_knows_experts(const struct profile *p);
/* Of one expert in each of n layers, with its training state. */
double plan_expert_gib(const struct profile *p, int n);

#endif
