/* SPDX-License-Identifier: Apache-2.0 */
/* sched_1f1b.c - one forward, one backward (PipeDream-flush: Narayanan et al., "Memory-Efficient
 * Pipeline-Parallel DNN Training", ICML 2021): stage s runs stages - 1 - s forwards ahead, then
 * alternates, then drains. The same time as gpipe with equal stages, and at most stages - s
 * microbatches in flight instead of all of them. */
#include "sched/sched.h"

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	int ahead = stages - 1 - stage, f = 0, b = 0;

	(void)chunks;
	if (ahead > microbatches)
		ahead = microbatches;
	while (f < ahead)
		*out++ = instr_compute(INSTR_FORWARD, f++, 0);
	while (b < microbatches) {
		if (f < microbatches)
			*out++ = instr_compute(INSTR_FORWARD, f++, 0);
		*out++ = instr_compute(INSTR_BACKWARD, b++, 0);
	}
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	(void)chunks;
	return stages - stage < microbatches ? stages - stage : microbatches;
}

const struct sched sched_1f1b = {
	.name = "1f1b",
	.help = "one forward, one backward (PipeDream-flush)",
	.order = order,
	.in_flight = in_flight,
};
