/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_direct.c - each place owns a piece of a segment: it gets this piece of every term, adds
 * them in the order of the terms, and sends the sum to all others. Each member sends and receives
 * about 2 (n - 1) / n of the numbers where each has one term; in the order SUM_EXACT as many times
 * the first half as it has terms. Where the state is shared the second half does not happen. One
 * message needs no other first: good for small groups and long round trips. Where the numbers are
 * on a card, it adds them (struct reduce_there).
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

/* ---- numbers, on the host or on the device: rooms for them begin at 0 ---- */

/* Makes `n` rooms; of the host's they lie in one of the reduction's. */
static int make_rooms(struct reduction *r, int n, int in, size_t count, struct err *e)
{
	if (r->io.there)
		return 0;
	float *v = reduce_room(r, in, (size_t)n * count, e);
	if (!v)
		return e->code;
	if (!mem_grow(&r->part, &r->part_cap, (size_t)n, sizeof *r->part))
		return err_nomem(e, (size_t)n * sizeof *r->part, "the sum of gradients");
	for (int i = 0; i < n; i++)
		r->part[i] = v + (size_t)i * count;
	return 0;
}

static int own(struct reduction *r, int k, size_t first, size_t some, int room, struct err *e)
{
	return r->io.there ? r->io.there->own(r->io.ctx, (size_t)k, first, some, room, e)
			   : r->io.own(r->io.ctx, (size_t)k, first, some, r->part[room], e);
}

static int send(struct reduction *r, int place, uint32_t number, int room, size_t some,
		struct err *e)
{
	return r->io.there ? r->io.there->send(r->io.ctx, place, number, room, some, e)
			   : r->io.send(r->io.ctx, place, number, r->part[room], some, e);
}

static int receive(struct reduction *r, int place, uint32_t number, int room, size_t some,
		   struct err *e)
{
	return r->io.there ? r->io.there->receive(r->io.ctx, place, number, room, some, e)
			   : r->io.receive(r->io.ctx, place, number, r->part[room], some, e);
}

static int result(struct reduction *r, size_t first, size_t some, int room, struct err *e)
{
	return r->io.there ? r->io.there->result(r->io.ctx, first, some, room, e)
			   : r->io.result(r->io.ctx, first, some, r->part[room], e);
}

/* Of terms on the device. */
struct addition {
	struct reduction *r;
	size_t count;
};

static int add_there(void *ctx, int to, int from, struct err *e)
{
	const struct addition *a = ctx;
	return a->r->io.there->add(a->r->io.ctx, to, from, a->count, e);
}

static int add_terms(struct reduction *r, size_t count, struct err *e)
{
	struct addition a = { r, count };
	if (r->io.there)
		return sum_with(r->terms, add_there, &a, e);
	sum_add(r->terms, r->part, count);
	reduce_round(r, r->part[0], count);
	return 0;
}

/* ---- the sum ---- */

static int begin(struct reduction *r, size_t segment, struct err *e)
{
	TRY(make_rooms(r, 1, REDUCE_AHEAD, reduce_place_at(r, segment, r->n), e));
	for (int i = 0; i < r->terms->n; i++) {
		const int k = reduce_own_term(r, i);
		for (int p = 0; k >= 0 && p < r->n; p++) {
			size_t first, some = reduce_piece(r, segment, p, &first);
			if (p == r->me || !some)
				continue;
			TRY(own(r, k, first, some, 0, e));
			TRY(send(r, p, number_of(r, segment, i), 0, some, e));
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
	TRY(make_rooms(r, n, REDUCE_OTHER, some, e));
	for (int i = 0; i < n; i++) {
		const int k = reduce_own_term(r, i);
		TRY(k >= 0 ? own(r, k, first, some, i, e)
			   : receive(r, r->terms->term[i].place, number_of(r, segment, i), i, some,
				     e));
	}
	TRY(add_terms(r, some, e));
	for (int p = 0; p < r->n && !r->cut; p++)
		if (p != r->me)
			TRY(send(r, p, number_of(r, segment, n), 0, some, e));
	return result(r, first, some, 0, e);
}

static int take(struct reduction *r, size_t segment, struct err *e)
{
	size_t first;
	TRY(make_rooms(r, 1, REDUCE_AHEAD, reduce_place_at(r, segment, r->n), e));
	for (int p = 0; p < r->n; p++) {
		const size_t some = reduce_piece(r, segment, p, &first);
		if (p == r->me || !some)
			continue;
		TRY(receive(r, p, number_of(r, segment, r->terms->n), 0, some, e));
		TRY(result(r, first, some, 0, e));
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
