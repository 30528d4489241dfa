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

/* A message: a lane of a piece, in one step of a segment. */
struct part {
	size_t first, count; /* in the segment, piece after piece */
	uint32_t number;
};

static struct part part_of(const struct reduction *r, size_t segment, uint32_t step, int piece,
			   size_t lane)
{
	size_t first, some = reduce_piece(r, segment, piece, &first), begin = some * lane / LANES,
		      end = some * (lane + 1) / LANES;
	return (struct part){ reduce_place_at(r, segment, piece) + begin, end - begin,
			      (uint32_t)segment * numbers(r) + step * LANES + (uint32_t)lane };
}

/* The piece that a member sends in a step: the one that it got in the step before. */
static int piece_out(const struct reduction *r, uint32_t step)
{
	const int half = r->n - 1, turn = (int)step < half ? (int)step + 1 : (int)step - half;
	return (r->me - turn + 2 * r->n) % r->n;
}

static int send_part(struct reduction *r, const struct part *p, const float *v, struct err *e)
{
	return p->count ? r->io.send(r->io.ctx, (r->me + 1) % r->n, p->number, v + p->first,
				     p->count, e)
			: 0;
}

/* The first step needs nothing of the others. */
static int begin(struct reduction *r, size_t segment, struct err *e)
{
	if (!steps(r)) /* alone */
		return 0;
	float *v = reduce_room(r, REDUCE_AHEAD, reduce_place_at(r, segment, r->n), e);
	if (!v)
		return e->code;
	TRY(reduce_own_sum(r, segment, v, e));
	for (size_t lane = 0; lane < LANES; lane++) {
		const struct part p = part_of(r, segment, 0, piece_out(r, 0), lane);
		TRY(send_part(r, &p, v, e));
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

/* A phase is a step. Between the steps of a segment its sums are in what it keeps. */
static int phase(struct reduction *r, size_t segment, uint32_t s, struct err *e)
{
	const int before = (r->me + r->n - 1) % r->n, in = piece_in(r, s);
	const bool gather = s >= (uint32_t)r->n - 1;
	float *v = reduce_kept(r, segment, e), *got = NULL;
	if (!v)
		return e->code;
	if (s == 0)
		TRY(reduce_own_sum(r, segment, v, e));
	if (!gather && !(got = reduce_room(r, REDUCE_OTHER, reduce_place_at(r, segment, r->n), e)))
		return e->code;
	for (size_t lane = 0; lane < LANES && s < steps(r); lane++) {
		const struct part p = part_of(r, segment, s, in, lane);
		if (p.count)
			TRY(r->io.receive(r->io.ctx, before, p.number, gather ? v + p.first : got,
					  p.count, e));
		for (size_t j = 0; !gather && j < p.count; j++)
			v[p.first + j] = got[j] + v[p.first + j];
		if (s + 2 == (uint32_t)r->n) /* every member has added its own */
			reduce_round(r, v + p.first, p.count);
		if (s + 1 == steps(r))
			continue;
		/* what came in is what goes out in the next step */
		const struct part next = part_of(r, segment, s + 1, in, lane);
		TRY(send_part(r, &next, v, e));
	}
	return s + 1 < steps(r) ? 0 : reduce_result(r, segment, v, e);
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
