/* SPDX-License-Identifier: Apache-2.0 */
/* worker_advice.c - see worker_advice.h. */
#include "worker/worker_advice.h"

#include "base/err.h"
#include "base/log.h"
#include "runtime/memory_advice.h"
#include "worker/worker_priv.h"

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
				.there = d->mem_used + caps.mem_free,
				.units = d->units };
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

uint64_t worker_beyond_buffers(const struct worker *w)
{
	struct dev_caps caps;
	struct err ignored = { 0 };
	if (!w->free_before || dev_caps(w->dev, &caps, &ignored) < 0)
		return 0;
	const uint64_t there = caps.mem_free + w->dev->mem_used;
	return w->free_before > there ? w->free_before - there : 0;
}

void worker_say_moved(const struct worker *w)
{
	const struct expert_counts x = expert_cache_counts(w->model.experts);
	const uint64_t moved = w->sum.gather.moved + w->sum.hosted.moved + w->park.moved + x.bytes,
		       beside = w->sum.gather.beside + w->sum.hosted.beside + w->park.beside +
				x.beside;
	if (moved)
		log_info("offload: %.1f MiB between the memories of device and host, %.0f %% of "
			 "them beside computing",
			 (double)moved / (1 << 20), 100.0 * (double)beside / (double)moved);
	const struct gather *g = &w->sum.gather;
	if (g->received)
		log_info("shared values: %.1f MiB from the other members, %.0f %% of them beside "
			 "computing",
			 (double)g->received / (1 << 20),
			 100.0 * (double)g->early / (double)g->received);
}
