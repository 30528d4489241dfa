/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h - schedules: for every member of a pipeline the list of instructions of one
 * optimizer step.
 *
 * Pure functions of plain integers: the shape of the pipeline, a stage, a place in its group. No
 * clock, no link, no global. The worker executes the list, the player (play.h) simulates the same
 * list; the schedule is described nowhere else.
 *
 * Stages and chunks. A stage is held by one member or by a group. `interleaved` cuts it into
 * several chunks that do not follow each other in the model (Narayanan et al. 2021, section 2.2:
 * "model chunks"); in every other schedule a stage is one chunk. The model passes the chunks in the
 * order of their numbers: chunk c of stage s has the number c * stages + s. The front of the model
 * belongs to number 0, its end to the last. Nothing is sent with one stage: its chunks follow each
 * other in one process.
 *
 * Groups. Each microbatch of a stage is run by one member of its group, by their shares
 * (sched_deal). A member's list is the list of its stage without the microbatches of the others. So
 * all lists together keep one order in which everything can happen, and no deadlock is possible.
 * While one member runs a microbatch the others begin the next ones: a group takes as many places
 * of the pipeline as it has microbatches in work at once (sched_depth), and the order of its stage
 * is that of its place in a pipeline which is longer by as much.
 *
 * What the executor does with an instruction, in list order:
 *   FORWARD, BACKWARD    compute one chunk for one microbatch. BACKWARD gives back the activations
 *                        that FORWARD kept.
 *   SEND_ACT, SEND_GRAD  hand the result to the link, without waiting for the receiver: it is sent
 *                        while the next instructions run.
 *   RECV_ACT, RECV_GRAD  wait until the message has arrived. It may arrive earlier, and before
 *                        others that the list receives first: with interleaving, gradients and
 *                        activations share a direction. So the executor keeps what arrived under
 *                        (kind, microbatch, chunk).
 *   SEND_SUMS            in a group, behind each part of the member's last backward of a chunk:
 *                        hand the gradients of this part to the other members, to each the piece
 *                        that it adds up. They travel while the next part is computed.
 *   REDUCE               wait until the gradients of this part are the sum over the group.
 *   SEND_VALUES          in a group that stores parts of a chunk's values: hand the own part to
 *                        the other members, one chunk ahead.
 *   GATHER, RELEASE      wait until the values of the chunk are complete; give them back.
 *   NORM                 the gradients of all chunks are complete: report this stage's part of the
 *                        global norm.
 *   STEP                 wait for the global norm of all stages, then update the parameters.
 * The chunk of a SEND is the sender's, that of a RECV the receiver's; a frame carries the
 * receiver's (sched_target). NORM and STEP close every list, once each; their microbatch, chunk,
 * peer and place are -1. A group's SEND_SUMS and REDUCE have a chunk and a part, and no microbatch
 * and peer.
 *
 * Gathered values (shape.gather; with schedules that work on one chunk at a time). Each chunk is
 * gathered before its forwards and before its backwards; the last one is kept between them. With
 * shape.alone a worker alone gathers too, from the memory of its host, and sums nothing. While a
 * chunk is computed, the values of the next one arrive and the gradients of the one before are
 * summed: its REDUCE follows SEND_SUMS of this one.
 *
 * Parts. In a group the last BACKWARD of each chunk is cut into shape.parts instructions, from the
 * last layers of the chunk to the first. Every other BACKWARD is whole: its `parts` is 0.
 *
 * A trained embedding that is also the head (sched_add_tied). The front owns it, the end has a
 * replica; the sums of both gradients are added once, on the front. Once a step, before NORM:
 *   SEND_TIED_GRAD, RECV_TIED_GRAD    the head's gradient, from the end to the front, which adds it
 * and behind STEP:
 *   SEND_TIED_VALUE, RECV_TIED_VALUE  the new value, from the front to the end
 * Their microbatch and chunk are -1. One stage alone sends nothing. In groups every member of the
 * front gets the gradient from one member of the end, and every member of the end the value from
 * one of the front.
 *
 * Experts elsewhere (shape.experts). The members that run the stage's microbatches are its homes;
 * each member of the group has some of the experts of its layers, and those behind the homes have
 * nothing else. A run of forwards or backwards that follow each other in the order of the stage is
 * computed layer by layer: of each microbatch in turn the layer up to the rows of the experts
 * (ROUTE), which go to their members (SEND_ROWS, RECV_ROWS, EXPERTS, and back), and one turn later
 * what is behind them (COMBINE). So a home computes one microbatch while the experts of another one
 * are computed elsewhere (zebra parallelism: Wu et al. 2025, arXiv 2504.03871). FORWARD and
 * BACKWARD close the microbatch; BACKWARD is the last of as many parts as there are layers. The
 * order of gradients stays that of the microbatches, in each layer.
 *
 * Order of accumulation. In every schedule and on every stage the backwards of one chunk happen in
 * the order of the microbatches, 0, 1, .. m-1 (gpipe too, which elsewhere often runs them in
 * reverse). A parameter lives in one chunk, so a member adds its gradients in this order, whatever
 * the schedule and the split: the sum is the same bit for bit. */
#ifndef HS_SCHED_SCHED_H
#define HS_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define INSTR_KINDS(X)                                                                             \
	X(FORWARD)                                                                                 \
	X(BACKWARD)                                                                                \
	X(SEND_ACT)                                                                                \
	X(RECV_ACT)                                                                                \
	X(SEND_GRAD)                                                                               \
	X(RECV_GRAD) X(SEND_SUMS) X(REDUCE) X(NORM) X(STEP) X(SEND_VALUES) X(GATHER) X(RELEASE)
#define INSTR_EXPERT_KINDS(X)                                                                      \
	X(ROUTE)                                                                                   \
	X(EXPERTS)                                                                                 \
	X(COMBINE)                                                                                 \
	X(SEND_ROWS)                                                                               \
	X(RECV_ROWS)                                                                               \
	X(BACK_ROUTE)                                                                              \
	X(BACK_EXPERTS) X(BACK_COMBINE) X(SEND_ROW_GRADS) X(RECV_ROW_GRADS)
#define INSTR_TIED_KINDS(X)                                                                        \
	X(SEND_TIED_GRAD) X(RECV_TIED_GRAD) X(SEND_TIED_VALUE) X(RECV_TIED_VALUE)

enum instr_kind {
#define X(name) INSTR_##name,
	INSTR_KINDS(X) INSTR_EXPERT_KINDS(X) INSTR_TIED_KINDS(X)
#undef X
		INSTR_COUNT
};

struct instr {
	enum instr_kind kind;
	int microbatch;
	int chunk;
	int peer;  /* the other stage of a SEND or RECV (of rows: its own); else -1 */
	int place; /* of the other member in that stage's group; else -1 */
	/* BACKWARD: the part of `parts`, which are 0 where it is whole. SEND_SUMS, REDUCE: the
	 * part. SEND_VALUES, GATHER, RELEASE: 0 before forwards, 1 before backwards. ROUTE to
	 * RECV_ROW_GRADS: the layer of the stage */
	short part, parts;
};

/* FORWARD or BACKWARD, whole. */
static inline struct instr instr_compute(enum instr_kind kind, int microbatch, int chunk)
{
	return (struct instr){ kind, microbatch, chunk, -1, -1, 0, 0 };
}

/* One of zeros is empty. */
struct instr_list {
	struct instr *item;
	size_t n, cap;
	int *deal; /* private: who runs which microbatch, here and on the stages beside */
	size_t deal_cap;
};

/* The experts of a stage on members of its group. */
struct sched_experts {
	int layers, places;
	const unsigned char *has; /* [layers * places] whether a member has some of the layer */
};

/* The shape of a pipeline. */
struct sched_shape {
	int stages, chunks, microbatches;
	/* [stages] how many members hold each stage; NULL: one each */
	const int *members;
	/* of the members, stage by stage and then by place: how much of the stage's work each does.
	 * At least 0, and above 0 in sum over a group. NULL: equal ones */
	const int *share;
	int parts;   /* of a chunk's gradients, summed one by one over a group; 0 means 1 */
	bool gather; /* members of a group store parts of the values (SHARD_PARAMETERS) */
	bool alone;  /* with `gather`: members alone gather too (OFFLOAD_PARAMETERS) */
	/* [stages] whose experts are on other members; layers 0: they are not. NULL: nowhere. Then
	 * `members` counts homes, behind which the group has places up to `places` */
	const struct sched_experts *experts;
};

/* The third is the limit of chunks * microbatches; the first also that of the sum of all stages'
 * sched_depth(). */
enum {
	SCHED_MAX_STAGES = 4096,
	SCHED_MAX_CHUNKS = 256,
	SCHED_MAX_MICROBATCHES = 1 << 20,
	SCHED_MAX_GROUP = 256,
	SCHED_MAX_PARTS = 64,
	SCHED_MAX_SHARE = 1000000
};

/* A schedule is the order of the forwards and backwards; sched_build() adds the messages and the
 * end of the step. */
struct sched {
	const char *name;
	const char *help;
	bool chunked; /* takes more than one chunk */
	bool gathers; /* works on one chunk at a time, so that shape.gather is possible */
	bool turns;   /* only of use where experts are elsewhere */
	/* MUST: fills `out` with the stage's 2 * chunks * microbatches computations (kind,
	 * microbatch, chunk). */
	void (*order)(int stages, int chunks, int microbatches, int stage, struct instr *out);
	/* MUST: the largest number of activations (of one chunk and one microbatch) that the order
	 * keeps at once. */
	int (*in_flight)(int stages, int chunks, int microbatches, int stage);
};

#define SCHED(id) extern const struct sched sched_##id;
#include "sched/sched.def"
#undef SCHED

/* The rows: i-th one (NULL past the end), by name (NULL if none), and the default (1f1b). */
const struct sched *sched_at(size_t i);
const struct sched *sched_find(const char *name);
const struct sched *sched_default(void);

/* Who of a group of n members runs microbatch i, for each i < microbatches: the one with the
 * largest share[k] / sum * (i + 1) less what it already has; of equal ones the lower place.
 * `share` NULL: equal ones. Whoever has share 0 gets none. */
void sched_deal(const int *share, int n, int microbatches, int *place_p);
/* The same, counted: how many each member runs, count_p[n]. */
void sched_dealt(const int *share, int n, int microbatches, int *count_p);
/* For messages, the rows of microbatches: "[13, 6, 34, 5]", cut short where it is longer. */
void sched_passes_text(const int *pass, size_t n, char *out, size_t cap);
/* The number of microbatches that a group of n works on at once, about: those that the others
 * finish while the slowest does one; at most 2 n. 1 for one member. */
int sched_depth(const int *share, int n);

/* The complete list of one member. `out` is emptied first and keeps its memory, so building again
 * allocates nothing; release it with instr_list_release(). On failure (arguments out of range,
 * memory) `out` is empty. */
int sched_build(const struct sched *s, const struct sched_shape *shape, int stage, int place,
		struct instr_list *out, struct err *e);
/* The list of an evaluation: the forward half only, microbatch after microbatch through the
 * chunks, whatever the schedule of training is; with shape.gather chunk after chunk. Nothing of the
 * end of a step. */
int sched_build_forward(const struct sched_shape *shape, int stage, int place,
			struct instr_list *out, struct err *e);
/* Adds what a trained embedding that is also the head needs to a list of sched_build(). */
int sched_add_tied(const struct sched_shape *shape, int stage, int place, struct instr_list *l,
		   struct err *e);
void instr_list_release(struct instr_list *l);

/* The most microbatch activations in flight on a member, from the begin of a FORWARD to the end of
 * its BACKWARD, each of one chunk. Messages that arrived before their FORWARD are not counted; at
 * most as many as the sending stage may be ahead. */
int sched_in_flight(const struct sched *s, const struct sched_shape *shape, int stage, int place);
/* The same for stages of one member each. */
int sched_in_flight_alone(const struct sched *s, int stages, int chunks, int microbatches,
			  int stage);

/* The most microbatches that have passed the model's end and are not yet back: with one chunk those
 * in flight on the last stage; with several all, where `gathers` is set, else one. */
int sched_at_end(const struct sched *s, int stages, int chunks, int microbatches);

/* Where a SEND of `chunk` arrives (`forward`: activations; else gradients). False when nothing is
 * sent there (end of the model, or the same worker holds the next chunk). */
bool sched_target(int stages, int chunks, int stage, int chunk, bool forward, int *stage_p,
		  int *chunk_p);

const char *instr_name(enum instr_kind k); /* "forward", "send_act", ... */
bool instr_sends(enum instr_kind k);
bool instr_is_of_group(enum instr_kind k);                /* SEND_SUMS to RELEASE */
static inline bool instr_is_of_experts(enum instr_kind k) /* ROUTE to RECV_ROW_GRADS */
{
	return k >= INSTR_ROUTE && k <= INSTR_RECV_ROW_GRADS;
}
bool instr_receives(enum instr_kind k);

#endif
