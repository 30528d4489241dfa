/* SPDX-License-Identifier: Apache-2.0 */
/* flows.c - see flows.h. */
#include "survey/flows.h"

#include "base/clock.h"

#include <math.h>

static const double keep = 0.8; /* of the rounds before, at each round */

int64_t flow_carried(const struct flow *out, int64_t out_clock, const struct flow *in,
		     int64_t in_clock, uint64_t *bytes_p)
{
	uint32_t n = out->times < in->times ? out->times : in->times;
	int64_t sum = 0, before = INT64_MIN;
	for (uint32_t i = 0; i < n; i++) {
		int64_t begin = out->at[i] + out_clock, end = in->at[i] + in_clock;
		if (before > begin)
			begin = before;
		if (end > begin)
			sum += end - begin;
		before = end > before ? end : before;
	}
	*bytes_p = n ? (uint64_t)((double)out->bytes * n / (double)out->messages) : 0;
	return sum;
}

static void rate_to_next(const struct stepped_message *m, const int64_t *clock, int next, int i,
			 struct flow_rate *r, struct train_stage *s)
{
	uint64_t bytes;
	int64_t ns = flow_carried(&m[i].flow[FLOW_TO_NEXT], clock[i], &m[next].flow[FLOW_FROM_PREV],
				  clock[next], &bytes);
	s->next_bytes = (double)bytes;
	s->next_flight = clock_seconds(ns);
	r->bytes = keep * r->bytes + (double)bytes;
	r->seconds = keep * r->seconds + clock_seconds(ns);
	if (ns > 0 && (double)bytes / clock_seconds(ns) > r->best)
		r->best = (double)bytes / clock_seconds(ns);
	if (r->bytes > 0 && r->seconds > 0) {
		s->rate = r->bytes / r->seconds;
		s->best_rate = r->best;
	}
	s->prev_flight = clock_seconds(flow_carried(&m[next].flow[FLOW_TO_PREV], clock[next],
						    &m[i].flow[FLOW_FROM_NEXT], clock[i], &bytes));
	s->prev_bytes = (double)bytes;
}

double train_expert_hits(const struct train_stage *stage, int n)
{
	double hits = 0, all = 0;
	for (int i = 0; i < n; i++) {
		hits += (double)stage[i].expert_hits;
		all += (double)(stage[i].expert_hits + stage[i].expert_misses);
	}
	return all > 0 ? hits / all : NAN;
}

void flows_of_round(const struct stepped_message *m, const int64_t *clock, const int *next, int n,
		    bool memory, struct flow_rate *rate, struct train_stage *stage)
{
	for (int i = 0; i < n; i++) {
		stage[i] = (struct train_stage){ .busy = clock_seconds(m[i].busy),
						 .copy = clock_seconds(m[i].copy),
						 .wait = clock_seconds(m[i].wait),
						 .mem_peak = m[i].mem_peak,
						 .host_peak = m[i].host_peak,
						 .expert_hits = m[i].expert_hits,
						 .expert_misses = m[i].expert_misses,
						 .sent = m[i].flow[FLOW_TO_NEXT].bytes +
							 m[i].flow[FLOW_TO_PREV].bytes,
						 .received = m[i].flow[FLOW_FROM_NEXT].bytes +
							     m[i].flow[FLOW_FROM_PREV].bytes,
						 .rate = NAN,
						 .best_rate = NAN };
		if (!memory && next[i] >= 0)
			rate_to_next(m, clock, next[i], i, &rate[i], &stage[i]);
	}
}
