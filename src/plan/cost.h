/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - the cost model: time and memory of a stage, and the step time by playing the lists of
 * the schedule.
 *
 * Letters: f, b one layer's forward and backward at microbatch size m on a device; e, h embedding
 * and head; n layers of a chunk; M microbatches a step; r = 1 where the stage recomputes.
 *
 *   FORWARD   n f (+ e_f on chunk 0 of the model, + h_f on the last)
 *   BACKWARD  n (b + r f) (+ e_b, + h_b)
 *   STEP      sum of the optimizer times of its layers, embedding, head
 *   message   m T C wire_bytes, both ways; SEND keeps the worker for download(m), RECV for
 *             upload(m)
 *   route     bandwidth and latency of the two hosts; between hosts it passes through the sender's
 *             and the receiver's network card, which all routes of that host share, each direction
 *             separately
 *   tied      an embedding that is trained and also the head: its gradient to the front before
 *             STEP, its value to the end behind it, each V C 4 bytes by the slower of the two
 *             directions between their devices
 *   memory    fixed + layers (layer_gib + layer_state_gib) (+ embedding, + head; one table where
 *             they are tied and in one stage)
 *             + in_flight (n kept(m) + boundary) without recomputation; n = layers of the largest
 *               chunk
 *             + in_flight n boundary with recomputation: the input of every layer is kept
 *             + on the last stage what the end keeps of each further microbatch that waits there
 *               (head_kept, sched_at_end)
 *             + max(activation(m), head_gib(m) on the last stage) + 2 boundary (messages); without
 *               recomputation activation(m) less kept(m), which the microbatches in flight have
 *             where in_flight is what the schedule states (sched_in_flight), boundary = m T C bytes
 *             of the dtype; where a group shares the state, that is the gradients and state_share
 *             of the rest
 *
 * Recomputation only adds time, and memory is counted for each stage alone; so `auto` recomputes
 * exactly on the stages that do not fit otherwise, and no other choice is faster.
 *
 * A member of a group that is a processor loses computing time to its messages (cost_talk.c).
 *
 * Where a chunk is one layer, as with values that are gathered, f and b of all passes but the first
 * are the warm ones.
 *
 * Groups whose members have the whole stage and microbatches of one size are played member by
 * member: each runs its own list, with its own device's times, routes and memory. The sum of their
 * gradients takes the time of sum_time.h; gradients are profile_gradients() of the state.
 *
 * Sharded groups under a schedule that gathers are played too: the values of each chunk are
 * gathered before its forwards and before its backwards (sched/sched.h), by gather_time(). A member
 * needs state_share (weights + state) of what is gathered; the values of two chunks, and where they
 * are trained their gradients; in_flight (chunks + layers of the stage / chunks) boundary with
 * recomputation. An embedding that is also the head stays whole.
 *
 * Other groups are one member of the play. Device i runs n_i of the M microbatches. The group
 * finishes a microbatch every t = max_i n_i (f_i + b_i) / M, but one microbatch still takes its own
 * device's time, so the time by which the slowest device exceeds t is added to the latency of what
 * leaves the group. Sharded (FSDP): each layer is gathered once per pass, gradients are scattered
 * once: the pass of a layer takes at least AG, the backward at least AG + RS; activations wait in
 * host memory (layer outer, microbatch inner), and a device needs 2 gathered layers + state_share
 * (weights + state) + activation(m) + 3 boundary. Not sharded (microbatches of several sizes):
 * every device has the weights, and the sum of gradients is added to the time of the optimizer. AG
 * and RS are the profile's `collective` where the group is all of its devices, else a ring at the
 * slowest link of the group: 1.15 (k - 1) / k bytes / bandwidth + (k - 1) latency; 1.15 as Zorse
 * measured.
 *
 * Where the microbatches of the only stage have several sizes, f and b of a member are the means of
 * those that it runs, and its memory is that of the largest.
 *
 * Experts in the memory of the host (offload: experts) travel in every pass, cost_fetch().
 *
 * The order `exact` of sums keeps sum_held() more gradients of what is trained. */
#ifndef HS_PLAN_COST_H
#define HS_PLAN_COST_H

#include "plan/plan.h"
#include "sched/play.h"

/* One microbatch size; arrays [devices], seconds and GiB. */
struct cost_row {
	int m;
	double *f, *b, *ef, *eb, *hf, *hb, *up, *down, *kept, *work, *head_work, *head_kept,
		*warm_f, *warm_b;
	double boundary_bytes, boundary_gib;
	double forwards; /* passes with their messages for each that is trained */
};

/* A candidate of a search. `group` is NULL for a stage of one device. */
struct pipe_stage {
	int device;
	bool recompute;
	const struct plan_stage *group;
};

struct pipe {
	const struct sched *sched;
	int stages, chunks, m, microbatches;
	struct pipe_stage *stage;
	const int *first; /* [stages * chunks + 1] */
	/* NULL unless members of a group are played; then its `members` has how many of each stage
	 * are (1: the stage is one member of the play). Set by cost_groups(). */
	const struct sched_shape *shape;
	const int *pass; /* [microbatches] rows, where they differ: one stage; else NULL */
};

/* Seconds a step. */
struct cost_talk {
	double forward_s, backward_s;
};

struct cost {
	const struct profile *p;
	const struct plan_options *o;
	double *limit; /* [devices] GiB */
	double *opt;   /* [devices] seconds of one layer's optimizer step */
	struct cost_row *row;
	size_t rows, rows_cap;
	struct player *player;
	double *scratch, *sums, *copy;
	struct cost_talk *talk; /* [members played * chunks] */
	struct play_route *route;
	size_t scratch_cap, sums_cap, copy_cap, talk_cap, route_cap;
	struct sum_terms terms;
	int *place;
	size_t place_cap;
	struct play_wire *wire;
	/* [devices] what to multiply measured times of computing with, because others on the same
	 * cores compute less than when it was measured; NULL: 1 */
	double *pace;
	struct arena mem;
	int64_t plays, instructions;
};

int cost_init(struct cost *c, const struct profile *p, const struct plan_options *o, struct err *e);
void cost_release(struct cost *c);
/* The row for a microbatch size; computed on first use. Invalidates earlier row pointers. NULL when
 * memory is out. */
const struct cost_row *cost_row(struct cost *c, int m);

/* GiB of its host's memory that member i of a stage needs for what is offloaded; and by how much
 * all devices of a host together exceed what is free there (0: they do not, or it is not known). */
double cost_host_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		     int stage, int i);
double cost_host_over(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int host);
bool cost_is_on_host(const struct cost *c, int device);
/* GiB of its host's memory that messages on the links of member i to the workers beside it take at
 * most: each way of a link as much as a step sends over it, and not more than its window
 * (net/net.h). */
double cost_links_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int i);

/* Whether the members of a group (MAY be NULL) are played each under a schedule; m: the pipe's
 * microbatch size; 0: each pass has its own. */
bool cost_can_play(const struct plan_stage *g, const struct sched *s, int m);
/* The shares by which the coordinator deals: those of the members, else their numbers of
 * microbatches. */
void cost_shares(const struct plan_stage *g, int *share);
/* Finds the groups of a pipe that are played member by member. */
int cost_groups(struct cost *c, struct pipe *q, struct err *e);

double cost_forward(const struct cost *c, const struct cost_row *r, const struct pipe *q, int stage,
		    int chunk);
double cost_backward(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		     int stage, int chunk);

/* Memory of member `i` of a stage (0 for a device alone), with or without recomputation. */
double cost_stage_gib(const struct cost *c, const struct cost_row *r, const struct pipe *q,
		      int stage, int i, bool recompute);
/* Decides recomputation. False when some stage does not fit either way. */
bool cost_fit(const struct cost *c, const struct cost_row *r, struct pipe *q);
/* A lower bound of the step time of this candidate: the work of each stage plus what must pass
 * before and after it, and the links. */
double cost_bound(const struct cost *c, const struct cost_row *r, const struct pipe *q);
/* The step time in seconds; INFINITY as soon as it is known to be `cutoff` or more. `out` (may be
 * NULL) is complete only below the cutoff; `spans` asks for the timeline. */
int cost_play(struct cost *c, const struct cost_row *r, const struct pipe *q, double cutoff,
	      bool spans, struct play_result *out, double *step_s_p, struct err *e);

/* Cuts `layers[k]` layers of each stage into `chunks` chunks, as even as possible, the first ones
 * larger; fills first[]. */
void cost_cut(int stages, int chunks, const int *layers, int *first);
/* Microbatch sizes a plan may use: the divisors of the global batch, or the one of the options;
 * ascending. Returns how many. */
int cost_microbatches(const struct profile *p, const struct plan_options *o, int *out, int most);

#endif
