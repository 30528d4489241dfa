/* SPDX-License-Identifier: Apache-2.0 */
/* cost_choice.c - see cost.h: what a candidate may choose from. */
#include "plan/cost.h"

void cost_cut(int stages, int chunks, const int *layers, int *first)
{
	int at = 0;

	for (int c = 0; c < chunks; c++)
		for (int k = 0; k < stages; k++) {
			first[c * stages + k] = at;
			at += layers[k] / chunks + (c < layers[k] % chunks);
		}
	first[stages * chunks] = at;
}

int cost_microbatches(const struct profile *p, const struct plan_options *o, int *out, int most)
{
	int n = 0;

	if (o->microbatch > 0) {
		out[0] = o->microbatch;
		return 1;
	}
	for (int m = 1; m <= p->global_batch && n < most; m++)
		if (p->global_batch % m == 0)
			out[n++] = m;
	return n;
}
