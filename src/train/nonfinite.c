/* SPDX-License-Identifier: Apache-2.0 */
/* nonfinite.c - see nonfinite.h. */
#include "train/nonfinite.h"

#include <math.h>
#include <stdio.h>

static void find(const struct rounds *p, const struct placement *pl, uint64_t step, char *out,
		 size_t cap)
{
	const unsigned long long at = step;
	for (uint32_t i = 0; i < p->microbatches; i++)
		if (!isfinite(p->loss[i].sum)) {
			snprintf(out, cap, "the loss of microbatch %u in step %llu, at stage %d", i,
				 at, pl->stages - 1);
			return;
		}
	/* backward runs from the end: the last bad layer is the first */
	for (int64_t i = p->layers + 1; i >= 0; i--)
		if (!isfinite(p->norm[i])) {
			snprintf(out, cap, "the gradient of layer %lld in step %llu, at stage %d",
				 (long long)i - 1, at,
				 chunk_stage_of_layer(pl->stages, pl->chunks, pl->first, i - 1));
			return;
		}
	snprintf(out, cap, "the gradient norm in step %llu", at);
}

void nonfinite_note(struct trainer *t, uint64_t step)
{
	if (!t->st.nonfinite)
		find(&t->rounds, t->place, step, t->nonfinite, sizeof t->nonfinite);
	else if (!t->nonfinite[0]) /* before this process went on with the run */
		snprintf(t->nonfinite, sizeof t->nonfinite, "step %llu",
			 (unsigned long long)(step - t->st.nonfinite));
}
