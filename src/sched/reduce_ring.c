/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_ring.c - reduce-scatter and all-gather around a ring (Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms for clusters of workstations", 2009): each member sends 2 (n - 1) /
 * n of the numbers, whatever the size of the group, to one neighbour, in 2 (n - 1) messages of
 * which each waits for the one before.
 *
 * The sum of piece p begins with the terms of place p + 1 and ends with those of place p: the same
 * bits for the same groups. A member without terms adds zeros. */
#include "sched/reduce.h"

#include "base/err.h"

enum { LANES = 4 /* parts of a piece: while one is added the others are on the wire */ };

static uint32_t steps(const struct reduction *r)
{
	return (r->cut ? 1 : 2) * ((uint32_t)r->n - 1); /* the second half is the all-gather */
}
static uint32_t numbers(const struct reduction *r) { return steps(r) * LANES; }

enum { SUM, GOT, OTHER /* rooms: of a piece, of a lane, of a piece */ };

/* A message: a lane of a piece, in one step of a segment. */
struct part {
	struct reduce_at v; /* where it is while the piece is in SUM */
	size_t count;
	uint32_t number;
};

static struct part part_of(const struct reduction *r, size_t segment, uint32_t step, int piece,
			   size_t lane)
{
	size_t first, some = reduce_piece(r, segment, piece, &first), begin = some * lane / LANES,
		      end = some * (lane + 1) / LANES;
	return (struct part){ { SUM, begin },
			      end - begin,
			      (uint32_t)segment * numbers(r) + step * LANES + (uint32_t)lane };
}

/* The piece that a member sends in a step: the one that it got in the step before. */
static int piece_out(const struct reduction *r, uint32_t step)
{
	const int half = r->n - 1, turn = (int)step < half ? (int)step + 1 : (int)step - half;
	return (r->me - turn + 2 * r->n) % r->n;
}

static int send_part(struct reduction *r, const struct part *p, struct err *e)
{
	return p->count ? reduce_send(r, (r->me + 1) % r->n, p->number, p->v, p->count, e) : 0;
}

/* Makes SUM for a piece. */
static int make_room(struct reduction *r, size_t segment, int piece, struct err *e)
{
	size_t first, some = reduce_piece(r, segment, piece, &first);
	return some ? reduce_room(r, SUM, some, e) : 0;
}

/* In SUM: what this member has of a piece. */
static int own_piece(struct reduction *r, size_t segment, int piece, struct err *e)
{
	return reduce_own_sum(r, segment, piece, piece + 1, (struct reduce_at){ SUM, 0 }, OTHER, e);
}

/* The first step needs nothing of the others. */
static int begin(struct reduction *r, size_t segment, struct err *e)
{
	const int piece = piece_out(r, 0);
	if (!steps(r)) /* alone */
		return 0;
	TRY(make_room(r, segment, piece, e));
	TRY(own_piece(r, segment, piece, e));
	for (size_t lane = 0; lane < LANES; lane++) {
		const struct part p = part_of(r, segment, 0, piece, lane);
		TRY(send_part(r, &p, e));
	}
	return 0;
}

/* A member alone has one phase. */
static uint32_t phases(const struct reduction *r) { return steps(r) ? steps(r) : 1; }

static int piece_in(const struct reduction *r, uint32_t step)
{
	return (piece_out(r, step) + r->n - 1) % r->n;
}

static int ready(struct reduction *r, size_t segment, uint32_t step, struct err *e)
{
	int rc = 1;
	for (size_t lane = 0; rc > 0 && lane < LANES && step < steps(r); lane++) {
		const struct part p = part_of(r, segment, step, piece_in(r, step), lane);
		rc = reduce_has(r, (r->me + r->n - 1) % r->n, p.number, p.count, e);
	}
	return rc;
}

/* A lane of the reduce-scatter: what has come of the sum, and this member's own. */
static int add_part(struct reduction *r, const struct part *p, struct err *e)
{
	const struct reduce_at got = { GOT, 0 };
	TRY(reduce_room(r, GOT, p->count, e));
	TRY(reduce_receive(r, (r->me + r->n - 1) % r->n, p->number, got, p->count, e));
	return reduce_add(r, p->v, got, p->count, e);
}

/* A phase is a step. A piece that is complete is taken at once: a member's own numbers of it were
 * needed in an earlier step, or in this one. */
static int phase(struct reduction *r, size_t segment, uint32_t s, struct err *e)
{
	const uint32_t half = (uint32_t)r->n - 1;
	const int in = piece_in(r, s);
	TRY(make_room(r, segment, in, e));
	if (s < half || !half)
		TRY(own_piece(r, segment, in, e));
	for (size_t lane = 0; lane < LANES && s < steps(r); lane++) {
		const struct part p = part_of(r, segment, s, in, lane);
		if (!p.count)
			continue;
		TRY(s < half ? add_part(r, &p, e)
			     : reduce_receive(r, (r->me + r->n - 1) % r->n, p.number, p.v, p.count,
					      e));
		if (s + 1 == half) /* every member has added its own */
			reduce_round(r, p.v, p.count);
		if (s + 1 == steps(r))
			continue;
		/* what came in is what goes out in the next step */
		const struct part next = part_of(r, segment, s + 1, in, lane);
		TRY(send_part(r, &next, e));
	}
	return s + 1 < half
		       ? 0
		       : reduce_result(r, segment, in, in + 1, (struct reduce_at){ SUM, 0 }, e);
}

static void seconds(const struct reduce_links *l, double *begin_s_p, double *finish_s_p)
{
	const double piece = l->bytes / l->n;
	*begin_s_p = l->around(l->ctx, piece, LANES);
	const int steps = (l->scatter ? 1 : 2) * (l->n - 1);
	*finish_s_p = l->segments * (steps - 1) * l->around(l->ctx, piece / l->segments, LANES);
}

const struct reducer reducer_ring = {
	.name = "ring",
	.help = "around a ring: the fewest bytes for each member",
	.segment = 1 << 20,
	.numbers = numbers,
	.receives = numbers,
	.begin = begin,
	.phases = phases,
	.ready = ready,
	.time = seconds,
	.phase = phase,
};
