/* SPDX-License-Identifier: Apache-2.0 */
/* plan_trace.c - see plan_trace.h. */
#include "report/plan_trace.h"

#include "base/err.h"
#include "report/trace.h"

#include <math.h>
#include <stdio.h>

enum { SPANS_MOST = 1 << 18 };

static void add(void *ctx, const struct play_span *s)
{
	enum instr_kind k = s->instr.kind;
	enum trace_stream stream = instr_sends(k)                           ? TRACE_SEND
				   : instr_receives(k) || k == INSTR_REDUCE ? TRACE_WAIT
									    : TRACE_COMPUTE;
	trace_span(ctx, (uint32_t)s->member, stream, instr_name(k), llround(s->begin_s * 1e9),
		   llround(s->end_s * 1e9), 1, s->instr.microbatch);
}

int plan_trace_write(const struct profile *p, const struct plan_options *o, struct plan *plan,
		     const char *path, struct err *e)
{
	struct trace *t;
	TRY(trace_new(SPANS_MOST, &t, e));
	uint32_t track = 0;
	for (int k = 0; k < plan->stages; k++) {
		char name[96];
		const struct plan_stage *s = &plan->stage[k];
		const bool each = plan_plays_members(plan, k);
		for (int i = 0; i < (each ? s->members : 1); i++) {
			const char *id = p->device[s->member[i].device].id;
			if (s->members > 1 && !each)
				snprintf(name, sizeof name,
					 "stage %d: %.24s and %d more, simulated", k, id,
					 s->members - 1);
			else
				snprintf(name, sizeof name, "stage %d: %.24s, simulated", k, id);
			trace_name_worker(t, track++, name);
		}
	}
	int rc = plan_timeline(p, o, plan, add, t, e);
	if (rc >= 0)
		rc = trace_write(t, path, e);
	trace_free(t);
	return rc;
}
