/* SPDX-License-Identifier: Apache-2.0 */
/* sched_eager.c - 1f1b with twice the forwards ahead (eager-1F1B: Zhuang et al., "On Optimizing the
 * Communication of Model Parallelism", MLSys 2023): stage s runs 2 (stages - 1 - s) ahead. In 1f1b
 * a stage's next input waits until a gradient has been sent back and an activation forward. Here
 * the input has already arrived, and both messages are in flight while the stages compute; up to
 * twice as many activations are kept. */
#include "sched/sched.h"

static int ahead_of(int stages, int microbatches, int stage)
{
	int ahead = 2 * (stages - 1 - stage);
	return ahead < microbatches ? ahead : microbatches;
}

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	int ahead = ahead_of(stages, microbatches, stage), f = 0, b = 0;

	(void)chunks;
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
	int most = ahead_of(stages, microbatches, stage) + 1;
	(void)chunks;
	return most < microbatches ? most : microbatches;
}

const struct sched sched_eager = {
	.name = "eager",
	.help = "1f1b with twice as many forwards ahead, so that messages travel while the stages "
		"compute",
	.order = order,
	.in_flight = in_flight,
};
