/* SPDX-License-Identifier: Apache-2.0 */
/* flows.h - the use of time of each stage in a round, from the workers' reports at its end, and the
 * rate of the links between them. Pure. */
#ifndef HS_SURVEY_FLOWS_H
#define HS_SURVEY_FLOWS_H

#include "proto/protocol.h"

/* A link in one direction over the whole run: sums in which older rounds count less, and the rate
 * of the best round. */
struct flow_rate {
	double bytes, seconds, best;
};

struct train_stage {
	double busy, copy, wait; /* seconds of the round: computing, moving messages, blocked */
	uint64_t mem_peak;       /* bytes on the device, of the run */
	uint64_t host_peak;      /* of what is offloaded, in the memory of its host */
	uint64_t expert_hits, expert_misses; /* of the round; both 0: none are offloaded */
	uint64_t sent, received;             /* bytes of the round, to and from both neighbours */
	/* Bytes per second to the next stage while something was in flight, recently and at best;
	 * computing at the same time makes it slower. NaN: nothing was sent, or only in memory. */
	double rate, best_rate;
	/* Of this round, to the next stage and from it: bytes, and seconds in which they were in
	 * flight; 0: as above. */
	double next_bytes, next_flight, prev_bytes, prev_flight;
};

/* Nanoseconds in which messages were in flight, one after the other as a link carries them: from
 * being handed to the link at one end (its clock + `out_clock` is ours) to having arrived at the
 * other. *bytes_p: of those messages. */
int64_t flow_carried(const struct flow *out, int64_t out_clock, const struct flow *in,
		     int64_t in_clock, uint64_t *bytes_p);

/* stage[n] of a round in which worker i sent m[i]; clock[i] added to its clock gives ours; next[i]
 * is the one that gets its activations (-1: none). rate[n]: kept from round to round, zero at
 * first. `memory`: all are threads of one process, and no link is used. */
/* The share of the experts that were needed in the round that were on their devices; NaN: none are
 * offloaded. */
double train_expert_hits(const struct train_stage *stage, int n);
void flows_of_round(const struct stepped_message *m, const int64_t *clock, const int *next, int n,
		    bool memory, struct flow_rate *rate, struct train_stage *stage);

#endif
