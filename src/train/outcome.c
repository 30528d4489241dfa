/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.c - see outcome.h. */
#include "train/outcome.h"

#include <math.h>

struct outcome outcome_of(const struct trainer *t, const struct train_step *s)
{
	struct outcome o = { .st = t->st };
	struct train_state *st = &o.st;
	o.overflow = st->scale.scale > 0 && loss_scale_update(&st->scale, !s->skipped) &&
		     isfinite(s->loss);
	if (!s->skipped)
		st->nonfinite = 0;
	else
		st->nonfinite += !o.overflow;
	st->updates += !s->skipped;
	st->skipped += s->skipped;
	st->tokens += s->tokens;
	st->origin = session_epoch(t->ses);
	st->step++;
	if (++st->batch >= batches_per_epoch(t->job->batches, st->epoch)) {
		st->batch = 0;
		st->epoch++;
	}
	return o;
}
