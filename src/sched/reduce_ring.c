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

static uint32_t steps(const struct reduction *r) { return 2 * ((uint32_t)r->n - 1); }

static int finish(struct reduction *r, size_t segment, struct err *e)
{
	const int n = r->n, next = (r->me + 1) % n, before = (r->me + n - 1) % n;
	size_t first, count = reduce_segment(r, segment, &first), at, some;
	TRY(reduce_own_sum(r, first, count, e));
	float *v = r->own, *got = v + count;
	for (uint32_t s = 0; s < steps(r); s++) {
		const bool gather = s >= (uint32_t)n - 1;
		/* a member sends the piece that it got in the step before */
		const int turn = gather ? (int)s - (n - 1) : (int)s + 1;
		const int out = ((r->me - turn) % n + 2 * n) % n;
		const int in = (out + n - 1) % n;
		const uint32_t number = (uint32_t)segment * steps(r) + s;
		some = reduce_piece(r, count, out, &at);
		if (some)
			TRY(r->io.send(r->io.ctx, next, number, v + at, some, e));
		some = reduce_piece(r, count, in, &at);
		if (!some)
			continue;
		TRY(r->io.receive(r->io.ctx, before, number, gather ? v + at : got, some, e));
		for (size_t j = 0; !gather && j < some; j++)
			v[at + j] = got[j] + v[at + j];
	}
	return r->io.result(r->io.ctx, first, count, v, e);
}

const struct reducer reducer_ring = {
	.name = "ring",
	.help = "around a ring: the fewest bytes for each member",
	.numbers = steps,
	.receives = steps,
	.finish = finish,
};
