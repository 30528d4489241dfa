/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_direct.c - each place owns a piece of a segment: it gets this piece of every term, adds
 * them in the order of the terms, and sends the sum to all others. Each member sends and receives
 * about 2 (n - 1) / n of the numbers where each has one term; in the order SUM_EXACT as many times
 * the first half as it has terms. Where the state is shared the second half does not happen. One
 * message needs no other first: good for small groups and long
 * round trips.
 *
 * Numbers of a segment: term i has i, the sum has the number behind the last term. */
#include "sched/reduce.h"

#include "base/err.h"
#include "base/mem.h"

static uint32_t numbers(const struct reduction *r) { return (uint32_t)r->terms->n + 1; }

static uint32_t receives(const struct reduction *r)
{
	uint32_t others = 0;
	for (int i = 0; i < r->terms->n; i++)
		others += r->terms->term[i].place != r->me;
	return r->cut ? others : others + (uint32_t)r->n - 1;
}

static uint32_t number_of(const struct reduction *r, size_t segment, int what)
{
	return (uint32_t)segment * numbers(r) + (uint32_t)what;
}

static int begin(struct reduction *r, size_t segment, struct err *e)
{
	float *v = reduce_room(r, REDUCE_AHEAD, reduce_place_at(r, segment, r->n), e);
	if (!v)
		return e->code;
	for (int i = 0; i < r->terms->n; i++) {
		const int k = reduce_own_term(r, i);
		for (int p = 0; k >= 0 && p < r->n; p++) {
			size_t first, some = reduce_piece(r, segment, p, &first);
			if (p == r->me || !some)
				continue;
			TRY(r->io.own(r->io.ctx, (size_t)k, first, some, v, e));
			TRY(r->io.send(r->io.ctx, p, number_of(r, segment, i), v, some, e));
		}
	}
	return 0;
}

/* Adds up the piece of this place; it is at r->part[0] then. */
static int add_piece(struct reduction *r, size_t segment, size_t first, size_t some, struct err *e)
{
	const int n = r->terms->n;
	float *v = reduce_room(r, REDUCE_OTHER, (size_t)n * some, e);
	if (!v || !mem_grow(&r->part, &r->part_cap, (size_t)n, sizeof *r->part))
		return v ? err_nomem(e, (size_t)n * sizeof *r->part, "the sum of gradients")
			 : e->code;
	for (int i = 0; i < n; i++) {
		const int k = reduce_own_term(r, i);
		r->part[i] = v + (size_t)i * some;
		TRY(k >= 0 ? r->io.own(r->io.ctx, (size_t)k, first, some, r->part[i], e)
			   : r->io.receive(r->io.ctx, r->terms->term[i].place,
					   number_of(r, segment, i), r->part[i], some, e));
	}
	sum_add(r->terms, r->part, some);
	return 0;
}

enum { ADD, TAKE, PHASES };

static uint32_t phases(const struct reduction *r) { return r->cut ? TAKE : PHASES; }

static int ready(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	size_t at;
	int rc = 1;
	if (phase == ADD) {
		const size_t some = reduce_piece(r, segment, r->me, &at);
		for (int i = 0; rc > 0 && i < r->terms->n; i++)
			if (r->terms->term[i].place != r->me)
				rc = reduce_has(r, r->terms->term[i].place,
						number_of(r, segment, i), some, e);
		return rc;
	}
	for (int p = 0; rc > 0 && p < r->n; p++)
		if (p != r->me)
			rc = reduce_has(r, p, number_of(r, segment, r->terms->n),
					reduce_piece(r, segment, p, &at), e);
	return rc;
}

/* Adds up this place's piece and sends it to the others. */
static int add(struct reduction *r, size_t segment, struct err *e)
{
	size_t first, some = reduce_piece(r, segment, r->me, &first);
	if (!some)
		return 0;
	TRY(add_piece(r, segment, first, some, e));
	reduce_round(r, r->part[0], some);
	for (int p = 0; p < r->n && !r->cut; p++)
		if (p != r->me)
			TRY(r->io.send(r->io.ctx, p, number_of(r, segment, r->terms->n), r->part[0],
				       some, e));
	return r->io.result(r->io.ctx, first, some, r->part[0], e);
}

static int take(struct reduction *r, size_t segment, struct err *e)
{
	size_t first;
	float *v = reduce_room(r, REDUCE_AHEAD, reduce_place_at(r, segment, r->n), e);
	if (!v)
		return e->code;
	for (int p = 0; p < r->n; p++) {
		const size_t some = reduce_piece(r, segment, p, &first);
		if (p == r->me || !some)
			continue;
		TRY(r->io.receive(r->io.ctx, p, number_of(r, segment, r->terms->n), v, some, e));
		TRY(r->io.result(r->io.ctx, first, some, v, e));
	}
	return 0;
}

static int phase(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	return phase == ADD ? add(r, segment, e) : take(r, segment, e);
}

static void seconds(const struct reduce_links *l, double *begin_s_p, double *finish_s_p)
{
	*begin_s_p = l->all_to_all(l->ctx, true);
	*finish_s_p = l->scatter ? 0 : l->all_to_all(l->ctx, false);
}

const struct reducer reducer_direct = {
	.name = "direct",
	.help = "each member adds up a part and sends it to all others; small groups",
	.exact = true,
	.numbers = numbers,
	.receives = receives,
	.begin = begin,
	.phases = phases,
	.ready = ready,
	.time = seconds,
	.phase = phase,
};
