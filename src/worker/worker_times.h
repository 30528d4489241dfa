/* SPDX-License-Identifier: Apache-2.0 */
/* worker_times.h - where a worker's time goes in a round, instruction by instruction, and what its
 * neighbours sent and got. */
#ifndef HS_WORKER_WORKER_TIMES_H
#define HS_WORKER_WORKER_TIMES_H

#include "sched/sched.h"
#include "proto/protocol.h"

struct worker_times {
	struct stepped_message
		m;         /* of the round; mem_peak and said are filled in when it is sent */
	struct span *span; /* room for TIMES_SPANS, or NULL: none are kept */
	size_t nspan;
	int64_t begin, ready; /* of the instruction under way */
};

enum { TIMES_SPANS = 4096 };

void times_round(struct worker_times *t); /* a new round: everything zero but the room for spans */
void times_begin(struct worker_times *t);
/* The instruction could not go on before `when`. */
void times_waited(struct worker_times *t, int64_t when);
/* `shown`: with a span of its own. */
void times_end(struct worker_times *t, const struct instr *i, bool shown);
/* A transfer that ran beside the instructions, of one of which it was: it counts in no sum. */
void times_beside(struct worker_times *t, const struct instr *i, int64_t begin, int64_t end);
void times_flow(struct worker_times *t, enum flow_kind k, uint64_t bytes, int64_t when);

#endif
