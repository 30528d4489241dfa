/* SPDX-License-Identifier: Apache-2.0 */
/* halves.h - passes through a stage whose experts are dealt to members of a group (deal.h), layer
 * by layer and each layer in two halves: what is before its experts, and what is behind them.
 *
 * Between two calls for a slot other slots may be used, so nothing of a slot is in the stage's
 * scratch memory then. Life of a slot, between stage_begin() and stage_end():
 *   forward, layers from the first to the last:
 *     halves_route(i)    leaves rows (M,C) in the order of the experts at half->rows
 *     ... the caller puts what the experts made of them in their place ...
 *     halves_combine(i)
 *   stage_forward()      the rest: where the output is, the losses
 *   backward, layers from the last to the first, as long as halves_back() says so:
 *     halves_back_combine(i) leaves the gradient of what the experts made at half->grad
 *     ... the caller puts the gradient of the rows at half->rows ...
 *     halves_back_route(i)
 *   stage_backward_part()  the rest: the front
 * A layer that is not dealt is computed whole by halves_route() and halves_back_route(). */
#ifndef HS_MODEL_HALVES_H
#define HS_MODEL_HALVES_H

#include "model/experts.h"
#include "model/stage.h"

struct err;

/* A layer of a slot between its halves. */
struct halves {
	struct expert_rows w;
	struct tensor *back; /* (M,C) what the experts made of the rows, where these were */
	struct tape_node *route, *combine;
	struct dev_ref rows, grad;
	/* Of the norms behind the experts (decoder.c): the gradient of this microbatch alone */
	struct dev_ref behind[2];
};

/* Whether layer i of the stage has halves; whether any layer has. */
static inline bool halves_at(const struct stage *s, int64_t i)
{
	return deal_has_layer(s->opt.deal, s->opt.first + i);
}
static inline bool stage_in_halves(const struct stage *s)
{
	for (int64_t i = 0; i < s->opt.last - s->opt.first; i++)
		if (halves_at(s, i))
			return true;
	return false;
}
int halves_route(struct slot *sl, int64_t i, struct err *e);
int halves_combine(struct slot *sl, int64_t i, struct err *e);
/* Whether anything is trained in layer i of the stage or before it. */
static inline bool halves_back(const struct stage *s, int64_t i) { return s->needs[i + 1]; }
int halves_back_combine(struct slot *sl, int64_t i, struct err *e);
int halves_back_route(struct slot *sl, int64_t i, struct err *e);

#endif
