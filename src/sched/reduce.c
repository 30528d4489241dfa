/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - see reduce.h: segments, and what all rows need of them. */
#include "sched/reduce.h"

#include "base/err.h"

enum {
	SEGMENT = 1 << 18,   /* numbers: 1 MiB */
	TERMS = 16,          /* with more of them, segments are smaller */
	AHEAD = 64,          /* segments that are begun before the first is finished, at most */
	PARTS = 16,          /* of a chunk's gradients, at most */
	PART_BYTES = 8 << 20 /* of a part, at least */
};

static size_t segment_size(const struct reduction *r)
{
	const size_t terms = (size_t)r->terms->n;
	if (r->largest || r->how->segment)
		return r->largest ? r->largest : r->how->segment;
	return terms > TERMS ? SEGMENT / (terms / TERMS + 1) + 1 : SEGMENT;
}

size_t reduce_segments(const struct reduction *r)
{
	return (r->count + segment_size(r) - 1) / segment_size(r);
}

size_t reduce_piece(const struct reduction *r, size_t segment, int place, size_t *first_p)
{
	const size_t n = (size_t)r->n, k = (size_t)place, all = reduce_segments(r);
	if (r->cut) {
		const size_t own = r->cut[k + 1] - r->cut[k], from = own * segment / all;
		*first_p = r->cut[k] + from;
		return own * (segment + 1) / all - from;
	}
	const size_t first = segment * segment_size(r), rest = r->count - first,
		     numbers = rest < segment_size(r) ? rest : segment_size(r);
	*first_p = first + numbers * k / n;
	return numbers * (k + 1) / n - numbers * k / n;
}

size_t reduce_place_at(const struct reduction *r, size_t segment, int place)
{
	size_t at = 0, first;
	for (int p = 0; p < place; p++)
		at += reduce_piece(r, segment, p, &first);
	return at;
}

size_t reduce_receives(const struct reduction *r)
{
	size_t all = reduce_segments(r), most = AHEAD + 3; /* two segments are under way */
	return (all < most ? all : most) * r->how->receives(r);
}

/* How many numbers the pieces from *p_p on have whose numbers follow each other in the array, and
 * where these begin; *p_p goes to the last of them. */
static size_t pieces_together(const struct reduction *r, size_t segment, int *p_p, int end,
			      size_t *first_p)
{
	size_t some = reduce_piece(r, segment, *p_p, first_p), q;
	for (; *p_p + 1 < end; ++*p_p) {
		const size_t more = reduce_piece(r, segment, *p_p + 1, &q);
		if (more && q != *first_p + some)
			break;
		some += more;
	}
	return some;
}

int reduce_own_sum(struct reduction *r, size_t segment, int from, int end, struct reduce_at to,
		   int other, struct err *e)
{
	const size_t count = reduce_place_at(r, segment, end) - reduce_place_at(r, segment, from);
	struct reduce_at term = to;
	bool any = !count;
	for (int i = 0; i < r->terms->n; i++) {
		const int k = reduce_own_term(r, i);
		if (k < 0)
			continue;
		any = true;
		if (k > 0) {
			term = (struct reduce_at){ other, 0 };
			TRY(reduce_room(r, other, count, e));
		}
		struct reduce_at v = term;
		for (int p = from; p < end; p++) {
			size_t first, some = pieces_together(r, segment, &p, end, &first);
			if (some)
				TRY(reduce_own(r, k, first, some, v, e));
			v.at += some;
		}
		if (k > 0)
			TRY(reduce_add(r, to, term, count, e));
	}
	return any ? 0 : reduce_clear(r, to, count, e);
}

int reduce_result(struct reduction *r, size_t segment, int from, int end, struct reduce_at v,
		  struct err *e)
{
	for (int p = from; p < end; p++) {
		size_t first, some = reduce_piece(r, segment, p, &first);
		if (some && (!r->cut || p == r->me))
			TRY(reduce_take(r, first, some, v, e));
		v.at += some;
	}
	return 0;
}

int reduce_own_term(const struct reduction *r, int i)
{
	int k = 0;
	if (r->terms->term[i].place != r->me)
		return -1;
	for (int j = 0; j < i; j++)
		k += r->terms->term[j].place == r->me;
	return k;
}

static int begin_to(struct reduction *r, size_t end, struct err *e)
{
	for (; r->begun < end; r->begun++)
		if (r->how->begin)
			TRY(r->how->begin(r, r->begun, e));
	return 0;
}

/* Segments that may be begun before segment s is finished. */
static size_t ahead_of(const struct reduction *r, size_t s)
{
	size_t most = REDUCE_MOST_UNDER_WAY / segment_size(r), all = reduce_segments(r);
	most = most < 1 ? 1 : most > AHEAD ? AHEAD : most;
	return s + most < all ? s + most : all;
}

int reduce_begin(struct reduction *r, struct err *e) { return begin_to(r, ahead_of(r, 0), e); }

size_t reduce_under_way(const struct reduction *r)
{
	return r->begun > r->period ? (r->begun - r->period) * segment_size(r) : 0;
}

/* A period is the first half of the phases of its segment, in turns with the second half of those
 * of the segment before. false: there is nothing in this turn. */
static bool in_turn(const struct reduction *r, uint32_t first, uint32_t phases, size_t *segment_p,
		    uint32_t *phase_p)
{
	const bool second = r->turn % 2;
	*segment_p = r->period - second;
	*phase_p = r->turn / 2 + (second ? first : 0);
	return second ? r->period > 0 && *phase_p < phases
		      : r->period < reduce_segments(r) && *phase_p < first;
}

/* 1: all segments are done; 0: the next phase would wait. */
static int run(struct reduction *r, bool wait, struct err *e)
{
	const size_t all = reduce_segments(r);
	const uint32_t phases = r->how->phases(r),
		       first = r->how->collective || phases < 2 ? phases : phases / 2,
		       longer = first > phases - first ? first : phases - first;
	for (; r->period <= all; r->period++) {
		if (!r->turn && r->period < all)
			TRY(begin_to(r, ahead_of(r, r->period), e));
		for (; r->turn < 2 * longer; r->turn++) {
			size_t segment;
			uint32_t phase;
			if (!in_turn(r, first, phases, &segment, &phase))
				continue;
			int rc = wait ? 1 : r->how->ready(r, segment, phase, e);
			if (rc <= 0)
				return rc;
			TRY(r->how->phase(r, segment, phase, e));
		}
		r->turn = 0;
	}
	return 1;
}

int reduce_advance(struct reduction *r, struct err *e) { return run(r, false, e); }

int reduce_finish(struct reduction *r, struct err *e)
{
	int rc = run(r, true, e);
	return rc < 0 ? rc : 0;
}

void reduce_reset(struct reduction *r)
{
	r->begun = r->period = 0;
	r->turn = 0;
}

int reduce_parts(double bytes, int64_t layers)
{
	const double n = bytes * (double)layers / PART_BYTES;
	int most = layers < PARTS ? (int)layers : PARTS;
	return n < 1 ? 1 : n < most ? (int)n : most;
}

int reduce_has(struct reduction *r, int place, uint32_t number, size_t count, struct err *e)
{
	return count ? r->io.has(r->io.ctx, place, number, e) : 1;
}
