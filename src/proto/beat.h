/* SPDX-License-Identifier: Apache-2.0 */
/* beat.h - sends the worker's state to the coordinator at intervals (PROGRESS), from a thread of
 * its own, so that a worker that is stuck in a driver can be distinguished from one that waits. */
#ifndef HS_PROTO_BEAT_H
#define HS_PROTO_BEAT_H

#include "net/net.h"
#include "proto/protocol.h"

#include <pthread.h>
#include <stdatomic.h>

struct err;

struct beat {
	/* The caller's. */
	struct link *link; /* to the coordinator; borrowed */
	uint64_t job, epoch;
	uint32_t member;
	double every; /* seconds; 0: nothing is sent */
	/* Private. */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool running, stop;
	atomic_uint state, instruction;
	atomic_ullong step, bytes;
};

int beat_start(struct beat *b, struct err *e);
void beat_stop(struct beat *b); /* one that was not started is allowed */

/* From the worker's thread. */
void beat_round(struct beat *b, uint64_t step); /* a round begins, or another long order */
void beat_instruction(struct beat *b, uint32_t at);
void beat_state(struct beat *b, enum progress_state s);
void beat_bytes(struct beat *b, uint64_t bytes);

#endif
