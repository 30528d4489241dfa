/* SPDX-License-Identifier: Apache-2.0 */
/* worker_times.c - see worker_times.h. */
#include "engine/worker_times.h"

#include "base/clock.h"

#include <string.h>

void times_round(struct worker_times *t)
{
	memset(&t->m, 0, sizeof t->m);
	t->nspan = t->queued = 0;
}

void times_begin(struct worker_times *t) { t->begin = t->ready = clock_now(); }

void times_waited(struct worker_times *t, int64_t when)
{
	if (when > t->ready)
		t->ready = when;
}

static void add_span(struct worker_times *t, const struct instr *i, int64_t begin, int64_t ready,
		     int64_t end)
{
	if (t->span && t->nspan < TIMES_SPANS)
		t->span[t->nspan++] = (struct span){ begin,
						     ready,
						     end,
						     (uint32_t)i->microbatch,
						     (uint8_t)i->kind,
						     (uint8_t)i->chunk };
}

void times_beside(struct worker_times *t, const struct instr *i, int64_t begin, int64_t end)
{
	add_span(t, i, begin, begin, end);
}

void times_end(struct worker_times *t, const struct instr *i, bool shown)
{
	bool moves = instr_sends(i->kind) || instr_receives(i->kind);
	int64_t end = clock_now(), ready = t->ready < end ? t->ready : end;
	const size_t before = t->nspan;
	t->m.wait += ready - t->begin;
	*(moves ? &t->m.copy : &t->m.busy) += end - ready;
	if (shown)
		add_span(t, i, t->begin, ready, end);
	if (!moves)
		t->queued = t->nspan > before ? t->nspan : 0;
}

void times_computed(struct worker_times *t)
{
	const int64_t now = clock_now();
	t->m.wait += t->ready - t->begin;
	t->m.busy += now - t->ready;
	t->begin = t->ready = now;
	if (t->queued)
		t->span[t->queued - 1].end = now;
	t->queued = 0;
}

void times_flow(struct worker_times *t, enum flow_kind k, uint64_t bytes, int64_t when)
{
	struct flow *f = &t->m.flow[k];
	f->bytes += bytes;
	f->messages++;
	if (f->times < FLOW_TIMES)
		f->at[f->times++] = when;
}
