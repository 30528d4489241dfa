/* SPDX-License-Identifier: Apache-2.0 */
/* worker_times.h - the times of a worker in a round, instruction by instruction, and its messages
 * to and from neighbours. */
#ifndef HS_ENGINE_WORKER_TIMES_H
#define HS_ENGINE_WORKER_TIMES_H

#include "sched/sched.h"
#include "proto/protocol.h"

struct worker_times {
	struct stepped_message
		m;         /* of the round; mem_peak and said are filled in when it is sent */
	struct span *span; /* room for TIMES_SPANS, or NULL: none are kept */
	size_t nspan;
	int64_t begin, ready; /* of the current instruction */
	size_t queued;        /* 1 + the last span of computing; 0: it is known when that ended */
};

enum { TIMES_SPANS = 4096 };

void times_round(struct worker_times *t); /* a new round: everything zero but the room for spans */
void times_begin(struct worker_times *t);
/* The instruction was blocked until `when`. */
void times_waited(struct worker_times *t, int64_t when);
/* `shown`: with a span of its own. */
void times_end(struct worker_times *t, const struct instr *i, bool shown);
/* The device has done what came before this instruction: that was computed until now. */
void times_computed(struct worker_times *t);
/* A transfer of instruction `i` that ran beside other instructions: it is added to no sum. */
void times_beside(struct worker_times *t, const struct instr *i, int64_t begin, int64_t end);
void times_flow(struct worker_times *t, enum flow_kind k, uint64_t bytes, int64_t when);

#endif
