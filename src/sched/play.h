/* SPDX-License-Identifier: Apache-2.0 */
/* play.h - the player: simulates all workers of a pipeline executing their instruction lists, with
 * given times.
 *
 * What is simulated (units: seconds, bytes):
 * - A worker executes its list in order, one instruction at a time. FORWARD and BACKWARD last
 *   forward_s and backward_s of (stage, chunk). A SEND occupies it for send_s of the stage (copy
 *   from the device, handing over), a RECV for recv_s once the message is there.
 * - Messages: the SEND puts the message into a queue without limit. A route (all messages from one
 *   stage to a neighbour, both kinds) transmits in order, one at a time; the last byte arrives
 *   `latency_s` after it was put on the wire, and meanwhile the next message may be transmitted.
 *   Directions are separate routes.
 * - Routes may share wires (the network card of a host that holds several stages, a common uplink):
 *   a transmission passes through up to two wires, the sender's and the receiver's, and at any
 *   moment gets the smallest of: the route's own bandwidth, and the bandwidth of each of its wires
 *   divided by the transmissions now on that wire.
 * - With `tied` the lists have the messages of sched_add_tied(): each arrives `tied_s` after its
 *   SEND, whatever else travels. They occupy no worker.
 * - STEP begins on every worker when all have ended NORM and `barrier_s` (global norm to the
 *   coordinator and back) has passed.
 *
 * Each worker's time is divided without rest: busy (FORWARD, BACKWARD, NORM, STEP), copy (send_s,
 * recv_s), wait (blocked while the message it needs is in flight: the link is too slow), bubble
 * (everything else: the message was not yet sent, other stages not yet at STEP, list ended).
 *
 * Lists that are not complete (a computation missing, double or out of order, a message that no
 * list receives) and lists that wait for each other are refused with ERR_INTERNAL, naming stage
 * and instruction. */
#ifndef HS_SCHED_PLAY_H
#define HS_SCHED_PLAY_H

#include "sched/sched.h"

struct play_wire {
	double bytes_per_s; /* > 0 */
};

struct play_route {
	double latency_s;
	double bytes_per_s;    /* > 0; INFINITY: only the wires limit */
	int wire_out, wire_in; /* index into `wire`, or -1 */
};

/* What to simulate. Arrays indexed [stage * chunks + chunk] or [stage]; NULL where a comment allows
 * it: all zero. */
struct play {
	int stages, chunks, microbatches;
	const double *forward_s, *backward_s; /* [stages * chunks] */
	const double *reduce_s, *step_s;      /* [stages] or NULL */
	const double *send_s, *recv_s;        /* [stages] or NULL: per message */
	double barrier_s;
	double act_bytes, grad_bytes; /* of one message */
	bool tied;                    /* front and end train one embedding */
	double tied_s;                /* its gradient to the front; its value to the end */
	/* route[2 * s] leads from stage s to s + 1 (from the last to stage 0), route[2 * s + 1] the
	 * other way, from stage s + 1 to s. With two stages, route[0] and route[1] also carry the
	 * messages from chunk to chunk. NULL: messages take no time. */
	const struct play_route *route; /* [2 * stages] */
	const struct play_wire *wire;
	size_t wires;
};

struct play_worker {
	double busy_s, copy_s, wait_s, bubble_s; /* their sum is the step time */
	double end_s;                            /* end of its list */
	/* peak number of activations kept (FORWARD begun, BACKWARD not ended) */
	int in_flight;
};

/* For the trace. SEND spans are the transmission on the wire, RECV spans the time the worker was
 * blocked (if any). */
struct play_span {
	int stage;
	struct instr instr;
	double begin_s, end_s;
};

struct play_result {
	double step_s;
	struct play_worker *worker; /* [stages] */
	struct play_span *span;     /* in no particular order; only when asked for */
	size_t spans;
};

/* Scratch memory for any number of plays: a planner's search allocates nothing once it is warm. */
struct player;
struct player *player_new(void); /* NULL when memory is out */
void player_free(struct player *pl);

/* Plays the lists a schedule builds. The result's arrays belong to `pl` and live until its
 * next use. */
int sched_play(struct player *pl, const struct sched *s, const struct play *in, bool spans,
	       struct play_result *out, struct err *e);

/* The same with lists from elsewhere: list[stages]. */
int sched_play_lists(struct player *pl, const struct instr_list *list, const struct play *in,
		     bool spans, struct play_result *out, struct err *e);

#endif
