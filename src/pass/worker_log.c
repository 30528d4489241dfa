/* SPDX-License-Identifier: Apache-2.0 */
/* worker_log.c - see worker_log.h. The failure of a job is not logged here: it is the error that
 * the caller shows. */
#include "pass/worker_log.h"

#include "base/clock.h"
#include "base/log.h"
#include "sched/chunks.h"

#include <stdio.h>
#include <string.h>

#define BY_TIME ((int64_t)30 * 1000000000) /* ns from one line to the next */

void worker_log_joined(struct worker_log *l, const char *host, const char *address, const char *way,
		       const char *backend, const char *device, uint64_t memory)
{
	if (l->id)
		log_info("worker '%s' has joined %s (%s, %s): %s, %s, %.1f GiB", l->id, host,
			 address, way, backend, device, (double)memory / (1 << 30));
}

void worker_log_ready(struct worker_log *l, const struct plan_message *p, uint64_t bytes,
		      uint64_t fetched)
{
	char layers[512];
	if (!l->id)
		return;
	chunk_layers_text(p->crew.stages, p->crew.chunks, p->first, plan_stage(p), layers,
			  sizeof layers);
	log_info(
		"worker '%s' is stage %d of %d, %s: %slayer%s %s%s; %.1f MB, %.1f of them over the "
		"link",
		l->id, plan_stage(p), p->crew.stages, p->schedule,
		plan_is_front(p) ? "embedding, " : "", strchr(layers, ' ') ? "s" : "", layers,
		plan_is_end(p) ? ", head" : "", (double)bytes / 1e6, (double)fetched / 1e6);
}

void worker_log_step(struct worker_log *l, const struct worker_step *s)
{
	if (!l->id)
		return;
	if (!l->began)
		l->began = s->begin;
	l->step = s->step;
	l->tokens += s->tokens;
	l->all_tokens += s->tokens;
	l->sent += s->times->flow[FLOW_TO_NEXT].bytes + s->times->flow[FLOW_TO_PREV].bytes;
	l->received += s->times->flow[FLOW_FROM_NEXT].bytes + s->times->flow[FLOW_FROM_PREV].bytes;
	l->lasted += s->end - s->begin;
	l->busy += s->times->busy;
	l->wait += s->times->wait;
	if (l->every < 0 ? s->end - l->told < BY_TIME
			 : s->step % (uint64_t)(l->every > 0 ? l->every : 1) != 0)
		return;
	l->told = s->end;
	double lasted = (double)(l->lasted > 0 ? l->lasted : 1);
	log_info("step %llu: %llu tokens, busy %.0f %%, waiting %.0f %%, device memory at most "
		 "%.2f GiB",
		 (unsigned long long)s->step, (unsigned long long)l->tokens,
		 100 * (double)l->busy / lasted, 100 * (double)l->wait / lasted,
		 (double)s->times->mem_peak / (1 << 30));
	l->tokens = 0;
	l->lasted = l->busy = l->wait = 0;
}

void worker_log_finished(const struct worker_log *l)
{
	if (!l->id)
		return;
	if (l->began)
		log_info(
			"worker '%s' ended after step %llu: %llu tokens in %.0f s, %llu bytes sent "
			"to and %llu received from its neighbours",
			l->id, (unsigned long long)l->step, (unsigned long long)l->all_tokens,
			clock_seconds(clock_now() - l->began), (unsigned long long)l->sent,
			(unsigned long long)l->received);
	else
		log_info("worker '%s' ended: nothing was trained", l->id);
}
