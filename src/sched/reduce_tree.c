/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_tree.c - a binomial tree: sums go to place 0 in log2 n rounds, and its result comes back
 * the same way. All numbers travel twice over each link of the tree: for large groups and few
 * numbers, where the number of messages one after the other is what counts.
 *
 * Place p adds the sums of p + 1, p + 2, p + 4, .. in this order. A member without terms adds
 * zeros. */
#include "sched/reduce.h"

#include "base/err.h"

static uint32_t numbers(const struct reduction *r)
{
	(void)r;
	return 2; /* up, down */
}

/* The largest step between place p and those below it: its lowest set bit. */
static int span_of(int p, int n)
{
	int span = 1;
	while (span < n && !(p & span))
		span *= 2;
	return span;
}

static uint32_t receives(const struct reduction *r)
{
	uint32_t children = 0;
	for (int s = 1; s < span_of(r->me, r->n) && r->me + s < r->n; s *= 2)
		children++;
	return children + (r->me > 0);
}

enum { UP, DOWN, PHASES };

static uint32_t phases(const struct reduction *r)
{
	(void)r;
	return PHASES;
}

static int ready(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	const int span = span_of(r->me, r->n);
	const uint32_t up = (uint32_t)segment * 2, down = up + 1;
	const size_t count = reduce_place_at(r, segment, r->n);
	int rc = 1;
	if (phase == DOWN)
		return r->me ? reduce_has(r, r->me - span, down, count, e) : 1;
	for (int s = 1; rc > 0 && s < span && r->me + s < r->n; s *= 2)
		rc = reduce_has(r, r->me + s, up, count, e);
	return rc;
}

enum { SUM, GOT, OTHER }; /* rooms */

/* To those below, and what this member needs of it. */
static int hand_down(struct reduction *r, size_t segment, size_t count, struct err *e)
{
	const struct reduce_at sum = { SUM, 0 };
	for (int s = span_of(r->me, r->n) / 2; s > 0; s /= 2)
		if (r->me + s < r->n)
			TRY(reduce_send(r, r->me + s, (uint32_t)segment * 2 + 1, sum, count, e));
	return reduce_result(r, segment, 0, r->n, sum, e);
}

/* The sum is complete at place 0, which hands it down at once. */
static int go_up(struct reduction *r, size_t segment, size_t count, struct err *e)
{
	const int span = span_of(r->me, r->n);
	const uint32_t number = (uint32_t)segment * 2;
	const struct reduce_at sum = { SUM, 0 }, got = { GOT, 0 };
	TRY(reduce_own_sum(r, segment, 0, r->n, sum, OTHER, e));
	for (int s = 1; s < span && r->me + s < r->n; s *= 2) {
		TRY(reduce_room(r, GOT, count, e));
		TRY(reduce_receive(r, r->me + s, number, got, count, e));
		TRY(reduce_add(r, sum, got, count, e));
	}
	if (r->me)
		return reduce_send(r, r->me - span, number, sum, count, e);
	reduce_round(r, sum, count);
	return hand_down(r, segment, count, e);
}

static int phase(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	const struct reduce_at sum = { SUM, 0 };
	const size_t count = reduce_place_at(r, segment, r->n);
	if (!count || (phase == DOWN && !r->me)) /* pieces of fewer numbers than segments */
		return 0;
	TRY(reduce_room(r, SUM, count, e));
	if (phase == UP)
		return go_up(r, segment, count, e);
	TRY(reduce_receive(r, r->me - span_of(r->me, r->n), (uint32_t)segment * 2 + 1, sum, count,
			   e));
	return hand_down(r, segment, count, e);
}

static void seconds(const struct reduce_links *l, double *begin_s_p, double *finish_s_p)
{
	int rounds = 0; /* log2 of the members, rounded up */
	while (1 << rounds < l->n)
		rounds++;
	*begin_s_p = 0;
	*finish_s_p = 2 * l->segments * rounds * l->slowest(l->ctx, l->bytes / l->segments);
}

const struct reducer reducer_tree = {
	.name = "tree",
	.help = "up and down a binomial tree: the fewest messages one after the other",
	.numbers = numbers,
	.receives = receives,
	.phases = phases,
	.ready = ready,
	.time = seconds,
	.phase = phase,
};
