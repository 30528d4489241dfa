/* SPDX-License-Identifier: Apache-2.0 */
/* worker_advice.c - see worker_advice.h. */
#include "worker/worker_advice.h"

#include "base/err.h"
#include "runtime/memory_advice.h"

void worker_advice(const struct plan_message *p, const struct orders *o,
		   const struct sched_shape *shape, struct dev *d, uint64_t parameters,
		   struct err *e)
{
	const struct crew *c = &p->crew;
	struct dev_caps caps;
	struct err ignored = { 0 };
	if (!d || dev_caps(d, &caps, &ignored) < 0)
		return;
	const int stage = plan_stage(p);
	struct memory_ask a = { .cfg = &p->cfg,
				.opt = &p->opt,
				.end = plan_is_end(p),
				.parameters = parameters,
				.there = d->mem_used + caps.mem_free };
	for (int k = 0; k < c->chunks; k++) {
		int v = chunk_number(c->stages, stage, k);
		a.layers += p->first[v + 1] - p->first[v];
	}
	for (size_t m = 0; m < o->have_cap; m++)
		if (o->have[m] && o->batch[m].head.n > a.tokens)
			a.tokens = o->batch[m].head.n;
	if (shape->microbatches)
		a.in_flight = sched_in_flight(sched_find(p->schedule), shape, stage, plan_place(p));
	memory_advice(&a, e);
}
