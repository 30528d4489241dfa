/* SPDX-License-Identifier: Apache-2.0 */
/* flows.h - what the stages did in a round, from what all workers said at its end; and how fast the
 * links between them carried. Pure. */
#ifndef HS_TRAIN_FLOWS_H
#define HS_TRAIN_FLOWS_H

#include "proto/protocol.h"

/* A link in one direction over the whole run: sums in which older rounds count less, and the rate
 * of the best round. */
struct flow_rate {
	double bytes, seconds, best;
};

struct train_stage {
	double busy, copy, wait; /* seconds of the round: computing, moving messages, blocked */
	uint64_t mem_peak;       /* bytes on the device, of the run */
	uint64_t sent, received; /* bytes of the round, to and from both neighbours */
	/* Bytes per second to the next stage while something was under way, lately and at best:
	 * with what computing beside it costs. NaN: nothing was, or only in memory. */
	double rate, best_rate;
};

/* Nanoseconds in which messages were under way, one after the other as a link carries them: from
 * being handed over at one end (its clock + `out_clock` is ours) to having arrived at the other.
 * *bytes_p: of those messages. */
int64_t flow_carried(const struct flow *out, int64_t out_clock, const struct flow *in,
		     int64_t in_clock, uint64_t *bytes_p);

/* stage[n] of a pass in which worker i sent m[i]; clock[i] added to its clock is ours; next[i] is
 * who gets its activations (-1: nobody). rate[n]: kept from pass to pass, zero at first. `memory`:
 * all are threads of one process, between which nothing is carried. */
void flows_of_pass(const struct stepped_message *m, const int64_t *clock, const int *next, int n,
		   bool memory, struct flow_rate *rate, struct train_stage *stage);

#endif
