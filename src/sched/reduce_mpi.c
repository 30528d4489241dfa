/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_mpi.c - the collective of the library that carries the links: MPI chooses the algorithm by
 * size and fabric, and all members get the same bits. It adds in an order of its own, so it serves
 * SUM_FAST only.
 *
 * A segment has two phases: this member's numbers are handed over, then the sum is taken. Every
 * member does the sums in one order, that of the instructions, and MPI has one at a time. A member
 * without terms adds zeros. */
#include "sched/reduce.h"

#include "base/err.h"

#include <math.h>

static uint32_t no_messages(const struct reduction *r)
{
	(void)r;
	return 0;
}

enum { GIVE, TAKE, PHASES };
enum { SUM, OTHER }; /* rooms */

static uint32_t phases(const struct reduction *r)
{
	(void)r;
	return PHASES;
}

static int ready(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	(void)segment;
	return phase == TAKE ? r->io.all_has(r->io.ctx, e) : 1;
}

static int phase(struct reduction *r, size_t segment, uint32_t phase, struct err *e)
{
	const size_t count = reduce_place_at(r, segment, r->n);
	const struct reduce_at v = { SUM, 0 };
	TRY(reduce_room(r, SUM, count, e));
	if (phase == GIVE) {
		TRY(reduce_own_sum(r, segment, 0, r->n, v, OTHER, e));
		return r->io.all_send(r->io.ctx, reduce_numbers(r, v), count, e);
	}
	TRY(r->io.all_receive(r->io.ctx, reduce_numbers(r, v), count, e));
	return reduce_result(r, segment, 0, r->n, v, e);
}

/* The library takes what suits: for few numbers a tree, for many a ring. */
static void seconds(const struct reduce_links *l, double *begin_s_p, double *finish_s_p)
{
	const double each = l->bytes / l->segments;
	int rounds = 0; /* log2 of the members, rounded up */
	while (1 << rounds < l->n)
		rounds++;
	*begin_s_p = 0;
	*finish_s_p = l->segments * fmin(2 * rounds * l->slowest(l->ctx, each),
					 2 * (l->n - 1) * l->around(l->ctx, each / l->n, 1));
}

const struct reducer reducer_mpi = {
	.name = "mpi",
	.help = "MPI's own collective; under mpirun or srun, with reduce_order: fast",
	.collective = true,
	.segment = 1 << 22,
	.numbers = no_messages,
	.receives = no_messages,
	.phases = phases,
	.ready = ready,
	.time = seconds,
	.phase = phase,
};
