/* SPDX-License-Identifier: Apache-2.0 */
/* sched_gpipe.c - all forwards, then all backwards (Huang et al., "GPipe", NeurIPS 2019,
 * figure 2c), the backwards in the order of the microbatches (sched.h). Keeps the activations
 * of every microbatch. */
#include "sched/sched.h"

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	(void)stages, (void)chunks, (void)stage;
	for (int m = 0; m < microbatches; m++)
		*out++ = instr_compute(INSTR_FORWARD, m, 0);
	for (int m = 0; m < microbatches; m++)
		*out++ = instr_compute(INSTR_BACKWARD, m, 0);
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	(void)stages, (void)chunks, (void)stage;
	return microbatches;
}

const struct sched sched_gpipe = {
	.name = "gpipe",
	.help = "all forwards, then all backwards",
	.order = order,
	.in_flight = in_flight,
};
