/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_direct.c - each place owns a piece of a segment: it gets this piece of every term, adds
 * them in the order of the terms, and sends the sum to all others. Each member sends and receives
 * about 2 (n - 1) / n of the numbers where each has one term; in the order SUM_EXACT as many times
 * the first half as it has terms. Where the state is shared the second half does not happen. One
 * message needs no other first: good for small groups and long round trips.
 *
 * Numbers of a segment: term i has i, the sum has the number behind the last term. */
#include "sched/reduce.h"

#include "base/err.h"

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

/* The room of a term, and of what is sent or taken. */
static struct reduce_at room_of(int term) { return (struct reduce_at){ term, 0 }; }

struct addition {
	struct reduction *r;
	size_t count;
};

static int add_terms(void *ctx, int to, int from, struct err *e)
{
	const struct addition *a = ctx;
	return reduce_add(a->r, room_of(to), room_of(from), a->count, e);
}

static int begin(struct reduction *r, size_t segment, struct err *e)
{
	for (int i = 0; i < r->terms->n; i++) {
		const int k = reduce_own_term(r, i);
		for (int p = 0; k >= 0 && p < r->n; p++) {
			size_t first, some = reduce_piece(r, segment, p, &first);
			if (p == r->me || !some)
				continue;
			TRY(reduce_room(r, 0, some, e));
			TRY(reduce_own(r, k, first, some, room_of(0), e));
			TRY(reduce_send(r, p, number_of(r, segment, i), room_of(0), some, e));
		}
	}
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
	const int n = r->terms->n;
	size_t first, some = reduce_piece(r, segment, r->me, &first);
	if (!some)
		return 0;
	for (int i = 0; i < n; i++) {
		const int k = reduce_own_term(r, i);
		TRY(reduce_room(r, i, some, e));
		TRY(k >= 0 ? reduce_own(r, k, first, some, room_of(i), e)
			   : reduce_receive(r, r->terms->term[i].place, number_of(r, segment, i),
					    room_of(i), some, e));
	}
	TRY(sum_with(r->terms, add_terms, &(struct addition){ r, some }, e));
	reduce_round(r, room_of(0), some);
	for (int p = 0; p < r->n && !r->cut; p++)
		if (p != r->me)
			TRY(reduce_send(r, p, number_of(r, segment, n), room_of(0), some, e));
	return reduce_take(r, first, some, room_of(0), e);
}

static int take(struct reduction *r, size_t segment, struct err *e)
{
	size_t first;
	for (int p = 0; p < r->n; p++) {
		const size_t some = reduce_piece(r, segment, p, &first);
		if (p == r->me || !some)
			continue;
		TRY(reduce_room(r, 0, some, e));
		TRY(reduce_receive(r, p, number_of(r, segment, r->terms->n), room_of(0), some, e));
		TRY(reduce_take(r, first, some, room_of(0), e));
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
