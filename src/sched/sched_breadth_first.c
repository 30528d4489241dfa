/* SPDX-License-Identifier: Apache-2.0 */
/* sched_breadth_first.c - chunk after chunk, and in each all microbatches (Lamy-Poirier,
 * "Breadth-First Pipeline Parallelism", MLSys 2023, arXiv 2211.05953, section 4.1): every stage
 * works on one chunk at a time. So the values of a chunk that several members store need to be
 * gathered once for all forwards and once for all backwards, whatever the number of microbatches.
 * With one stage whose chunks are single layers this is Cephalo's order, layers outside and
 * microbatches inside (arXiv 2411.01075, section 4). Keeps the activations of every microbatch of
 * every chunk. */
#include "sched/sched.h"

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	(void)stages, (void)stage;
	for (int c = 0; c < chunks; c++)
		for (int m = 0; m < microbatches; m++)
			*out++ = instr_compute(INSTR_FORWARD, m, c);
	for (int c = chunks - 1; c >= 0; c--)
		for (int m = 0; m < microbatches; m++)
			*out++ = instr_compute(INSTR_BACKWARD, m, c);
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	(void)stages, (void)stage;
	return chunks * microbatches;
}

const struct sched sched_breadth_first = {
	.name = "breadth_first",
	.help = "chunk after chunk, each with all microbatches: for 'shard: parameters'",
	.chunked = true,
	.gathers = true,
	.order = order,
	.in_flight = in_flight,
};
