/* SPDX-License-Identifier: Apache-2.0 */
/* play.h - the player: simulates all members of a pipeline executing their instruction lists, with
 * given times.
 *
 * Members are numbered stage by stage, and in a group by place. Where every stage has one member,
 * its number is that of its stage.
 *
 * What is simulated (units: seconds, bytes):
 * - A worker executes its list in order, one instruction at a time. FORWARD and BACKWARD last
 *   forward_s and backward_s of (member, chunk). A SEND occupies it for send_s of the member (copy
 *   from the device, handing over), a RECV for recv_s once the message is there.
 * - Messages: the SEND puts the message into a queue without limit. A route (all messages from one
 *   member to a member of a neighbouring stage, both kinds) transmits in order, one at a time; the
 *   last byte arrives `latency_s` after it was put on the wire, and meanwhile the next message may
 *   be transmitted. Directions are separate routes.
 * - Routes may share wires (the network card of a host that holds several members, a common
 *   uplink): a transmission passes through up to two wires, the sender's and the receiver's, and
 *   where a machine between passes it on through two of that one's. At any moment it gets the
 *   smallest of: the route's own bandwidth, and the bandwidth of each of its wires divided by the
 *   transmissions now on that wire.
 * - The sum of a chunk's gradients over a group has two halves, and `parts` parts of equal size. A
 *   part's share of scatter_s begins when the last member has come to its SEND_SUMS, and occupies
 *   nobody; its share of reduce_s follows: at once where there are several parts, which members add
 *   up between their layers, else when all members are at REDUCE too. With its end REDUCE ends on
 *   all of them. A group's sums follow each other, and use no route.
 * - With `gather` the values of a chunk are gathered over its group: their gather_s begins when the
 *   last member has come to its SEND_VALUES, occupies nobody, and follows the group's sums and
 *   gathers before it. GATHER ends with it.
 * - With `tied` the lists have the messages of sched_add_tied(): each arrives `tied_s` after its
 *   SEND, whatever else travels. They occupy no worker.
 * - STEP begins on every worker when all have ended NORM and `barrier_s` (global norm to the
 *   coordinator and back) has passed.
 *
 * Each worker's time is divided without rest: busy (FORWARD, BACKWARD, NORM, STEP), copy (send_s,
 * recv_s), wait (blocked while the message it needs is in flight, or a sum or gather under way: the
 * link is too slow), bubble (everything else: the message was not yet sent, other members not yet
 * at REDUCE or STEP, list ended).
 *
 * Lists that are not complete (a computation missing, double, out of order or on another member
 * than sched_deal() says, a message that no list receives, a sum without a member) and lists that
 * wait for each other are refused with ERR_INTERNAL, naming stage, place and instruction. */
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
	/* what is passed on by another machine: 1 + index of the wires by which it comes in there
	 * and goes out again; 0: none */
	int via[2];
};

/* What to simulate. Arrays of times may be NULL where a comment says so: all zero. */
struct play {
	int stages, chunks, microbatches;
	/* As in struct sched_shape. */
	const int *members, *share;
	int parts;
	const double *forward_s, *backward_s; /* [members * chunks] */
	const double *scatter_s, *reduce_s;   /* [stages * chunks] or NULL; only of groups */
	bool gather, alone;                   /* as in struct sched_shape */
	const double *gather_s;        /* [stages * chunks] or NULL: where values are gathered */
	const double *norm_s, *step_s; /* [members] or NULL */
	const double *send_s, *recv_s; /* [members] or NULL: per message */
	double barrier_s;
	double act_bytes, grad_bytes; /* of one message */
	bool tied;                    /* front and end train one embedding */
	double tied_s;                /* its gradient to the front; its value to the end */
	/* Link s joins stage s and the next one (the last and stage 0), with n and k members. Its
	 * routes follow those of link s - 1: first n * k from stage s to the next, place by place
	 * of stage s and then of the next, then as many the other way in the same order of pairs.
	 * One member each: route[2 * s] leads from stage s to s + 1, route[2 * s + 1] back. With
	 * two stages there is only link 0, which also carries the messages from chunk to chunk.
	 * NULL: messages take no time. */
	const struct play_route *route;
	const struct play_wire *wire;
	size_t wires;
};

struct play_worker {
	double busy_s, copy_s, wait_s, bubble_s; /* their sum is the step time */
	double end_s;                            /* end of its list */
	/* peak number of activations kept (FORWARD begun, BACKWARD not ended) */
	int in_flight;
};

/* For the trace. SEND spans are the transmission on the wire, RECV and REDUCE spans the time the
 * worker was blocked (if any). */
struct play_span {
	int member;
	struct instr instr;
	double begin_s, end_s;
};

struct play_result {
	double step_s;
	struct play_worker *worker; /* [members] */
	int members;
	struct play_span *span; /* in no particular order; only when asked for */
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

/* The same with lists from elsewhere: list[members]. */
int sched_play_lists(struct player *pl, const struct instr_list *list, const struct play *in,
		     bool spans, struct play_result *out, struct err *e);

#endif
