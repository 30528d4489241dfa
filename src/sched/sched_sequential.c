/* SPDX-License-Identifier: Apache-2.0 */
/* sched_sequential.c - one microbatch at a time through all stages, forward and back: least memory,
 * and the baseline of every comparison. All stages but one wait at any time. */
#include "sched/sched.h"

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	(void)stages, (void)chunks, (void)stage;
	for (int m = 0; m < microbatches; m++) {
		*out++ = instr_compute(INSTR_FORWARD, m, 0);
		*out++ = instr_compute(INSTR_BACKWARD, m, 0);
	}
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	(void)stages, (void)chunks, (void)microbatches, (void)stage;
	return 1;
}

const struct sched sched_sequential = {
	.name = "sequential",
	.help = "one microbatch at a time through all stages",
	.order = order,
	.in_flight = in_flight,
};
