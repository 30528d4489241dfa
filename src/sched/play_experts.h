/* SPDX-License-Identifier: Apache-2.0 */
/* play_experts.h - the player for pipelines in which experts are on other members than the rest of
 * their stage (sched.h): simulates all members executing the lists of a schedule, with given times.
 * For all other pipelines there is play.h, whose members compute whole microbatches.
 *
 * Members are numbered stage by stage, in a stage by place: homes, then those that have experts
 * alone. Each executes its list in order. A message leaves when what its sender is doing has ended,
 * waits for those before it from the same member to the same member, and arrives `latency_s` after
 * its last byte; receiving it occupies nobody. Wires are not shared. The sum of gradients over
 * homes begins when all of them have come to it. Units: seconds, bytes. */
#ifndef HS_SCHED_PLAY_EXPERTS_H
#define HS_SCHED_PLAY_EXPERTS_H

#include "sched/sched.h"

struct err;

/* Of a member. Of a stage whose experts are not dealt, forward_s and backward_s are of all its
 * layers; else of what its layers do not have, the front and the end of the model. */
struct expert_member {
	double forward_s, backward_s;     /* of a microbatch */
	double route_s, back_route_s;     /* of a layer: what is not experts; of a home */
	double experts_s, back_experts_s; /* of a layer: the experts that it has */
	double row_bytes;                 /* of a layer: the rows that it gets of a microbatch */
	double copy_s;                    /* of such rows, between device and link: of both ends */
	double step_s;
};

struct expert_play {
	struct sched_shape shape;
	const struct expert_member *member; /* [members] */
	double act_bytes;                   /* between stages */
	/* [members * members], from the row to the column; NULL: messages take no time */
	const double *latency_s, *bytes_per_s;
	/* [members * layers of the longest stage that deals experts], by the layer of the stage:
	 * factors on what members have of experts_s, row_bytes and copy_s; NULL: 1 */
	const double *share;
	const double *sum_s; /* [stages] of a group of homes; NULL: 0 */
	double barrier_s;
	/* MAY: every time that a member computed */
	void (*span)(void *ctx, int member, const struct instr *i, double begin_s, double end_s);
	void *ctx;
};

struct expert_played {
	double step_s;
	double *busy_s; /* [members], the caller's */
};

int expert_play_members(const struct sched_shape *h);
/* ERR_INTERNAL where lists wait for each other. */
int expert_play_run(const struct sched *s, const struct expert_play *p, struct expert_played *out,
		    struct err *e);

#endif
