/* SPDX-License-Identifier: Apache-2.0 */
/* sched_zebra.c - 1f1b with two microbatches in place of each: for stages whose experts are on
 * other members, which compute those of one microbatch while the home computes the other (zebra
 * parallelism: Wu et al. 2025, arXiv 2504.03871, section 4). */
#include "sched/sched.h"

enum { TURN = 2 };

static void order(int stages, int chunks, int microbatches, int stage, struct instr *out)
{
	const int turns = (microbatches + TURN - 1) / TURN;
	int ahead = stages - 1 - stage, f = 0, b = 0;
	(void)chunks;
	if (ahead > turns)
		ahead = turns;
	while (b < turns) {
		const bool forward = f < turns && f <= b + ahead;
		const int turn = forward ? f++ : b++;
		for (int m = turn * TURN; m < (turn + 1) * TURN && m < microbatches; m++)
			*out++ = instr_compute(forward ? INSTR_FORWARD : INSTR_BACKWARD, m, 0);
	}
}

static int in_flight(int stages, int chunks, int microbatches, int stage)
{
	(void)chunks;
	const int most = TURN * (stages - stage);
	return most < microbatches ? most : microbatches;
}

const struct sched sched_zebra = {
	.name = "zebra",
	.help = "two microbatches in turns, for experts on other members",
	.turns = true,
	.order = order,
	.in_flight = in_flight,
};
