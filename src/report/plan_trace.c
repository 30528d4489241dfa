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
	enum trace_stream stream = instr_sends(k)      ? TRACE_SEND
				   : instr_receives(k) ? TRACE_WAIT
						       : TRACE_COMPUTE;
	trace_span(ctx, (uint32_t)s->stage, stream, instr_name(k), llround(s->begin_s * 1e9),
		   llround(s->end_s * 1e9), 1, s->instr.microbatch);
}

int plan_trace_write(const struct profile *p, const struct plan_options *o, struct plan *plan,
		     const char *path, struct err *e)
{
	struct trace *t;
	TRY(trace_new(SPANS_MOST, &t, e));
	for (int k = 0; k < plan->stages; k++) {
		char name[96];
		const struct plan_stage *s = &plan->stage[k];
		if (s->members > 1)
			snprintf(name, sizeof name, "stage %d: %.24s and %d more, simulated", k,
				 p->device[s->member[0].device].id, s->members - 1);
		else
			snprintf(name, sizeof name, "stage %d: %.24s, simulated", k,
				 p->device[s->member[0].device].id);
		trace_name_worker(t, (uint32_t)k, name);
	}
	int rc = plan_timeline(p, o, plan, add, t, e);
	if (rc >= 0)
		rc = trace_write(t, path, e);
	trace_free(t);
	return rc;
}
