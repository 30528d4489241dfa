/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - see reduce.h: segments, and what all rows need. */
#include "sched/reduce.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum {
	SEGMENT = 1 << 18,   /* numbers: 1 MiB */
	TERMS = 16,          /* with more of them, segments are smaller */
	AHEAD = 64,          /* segments that are begun before the first is finished, at most */
	PARTS = 16,          /* of a chunk's gradients, at most */
	PART_BYTES = 8 << 20 /* of a part, at least */
};

float *reduce_room(struct reduction *r, int room, size_t count, struct err *e)
{
	if (mem_grow(&r->room[room].p, &r->room[room].cap, count ? count : 1, sizeof(float)))
		return r->room[room].p;
	err_nomem(e, count * sizeof(float), "the sum of gradients");
	return NULL;
}

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

/* The numbers of a segment of the k-th own term, piece after piece. */
static int own_numbers(struct reduction *r, size_t segment, int k, float *v, struct err *e)
{
	for (int p = 0; p < r->n; p++) {
		size_t first, some = reduce_piece(r, segment, p, &first), q;
		while (p + 1 < r->n) { /* pieces that follow each other are one */
			const size_t more = reduce_piece(r, segment, p + 1, &q);
			if (more && q != first + some)
				break;
			some += more;
			p++;
		}
		if (some)
			TRY(r->io.own(r->io.ctx, (size_t)k, first, some, v, e));
		v += some;
	}
	return 0;
}

float *reduce_kept(struct reduction *r, size_t segment, struct err *e)
{
	return reduce_room(r, (int)(segment % REDUCE_KEPT), reduce_place_at(r, segment, r->n), e);
}

int reduce_own_sum(struct reduction *r, size_t segment, float *v, struct err *e)
{
	const size_t count = reduce_place_at(r, segment, r->n);
	float *term = v;
	memset(v, 0, count * sizeof *v);
	for (int i = 0; i < r->terms->n; i++) {
		const int k = reduce_own_term(r, i);
		if (k < 0)
			continue;
		TRY(own_numbers(r, segment, k, term, e));
		for (size_t j = 0; term != v && j < count; j++)
			v[j] += term[j];
		term = reduce_room(r, REDUCE_OTHER, count, e);
		if (!term)
			return e->code;
	}
	return 0;
}

int reduce_result(struct reduction *r, size_t segment, const float *v, struct err *e)
{
	for (int p = 0; p < r->n; p++) {
		size_t first, some = reduce_piece(r, segment, p, &first);
		if (some && (!r->cut || p == r->me))
			TRY(r->io.result(r->io.ctx, first, some, v, e));
		v += some;
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

void reduce_round(const struct reduction *r, float *v, size_t count)
{
	if (r->io.round)
		r->io.round(r->io.ctx, v, count);
}

int reduce_has(struct reduction *r, int place, uint32_t number, size_t count, struct err *e)
{
	return count ? r->io.has(r->io.ctx, place, number, e) : 1;
}

void reduce_release(struct reduction *r)
{
	mem_free(r->part);
	r->part = NULL;
	r->part_cap = 0;
	for (int i = 0; i < REDUCE_ROOMS; i++) {
		mem_free(r->room[i].p);
		r->room[i].p = NULL;
		r->room[i].cap = 0;
	}
}
