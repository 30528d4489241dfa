/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h - schedules: for every worker of a pipeline the list of instructions of one
 * optimizer step.
 *
 * Pure functions of (stages, chunks, microbatches, stage): no clock, no link, no global. The
 * worker executes the list, the player (play.h) simulates the same list; the schedule is described
 * nowhere else.
 *
 * Stages and chunks. A worker holds one stage. `interleaved` cuts it into several chunks that do
 * not follow each other in the model (Narayanan et al. 2021, section 2.2: "model chunks"); in every
 * other schedule a stage is one chunk. The model passes the chunks in the order of their numbers:
 * chunk c of stage s has the number c * stages + s. The front of the model belongs to number 0, its
 * end to the last. Nothing is sent with one stage: its chunks follow each other in one process.
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
 *   REDUCE               the gradients of all chunks are complete: sum them over the group, report
 *                        this stage's part of the global norm.
 *   STEP                 wait for the global norm of all stages, then update the parameters.
 * The chunk of a SEND is the sender's, that of a RECV the receiver's; a frame carries the
 * receiver's (sched_target). REDUCE and STEP close every list, once each; their microbatch, chunk
 * and peer are -1.
 *
 * A trained embedding that is also the head (sched_add_tied). The front owns it, the end has a
 * replica; the sums of both gradients are added once, on the front. Once a step, before REDUCE:
 *   SEND_TIED_GRAD, RECV_TIED_GRAD    the head's gradient, from the end to the front, which adds it
 * and behind STEP:
 *   SEND_TIED_VALUE, RECV_TIED_VALUE  the new value, from the front to the end
 * Their microbatch and chunk are -1. One stage alone sends nothing.
 *
 * Order of accumulation. In every schedule and on every stage the backwards of one chunk happen in
 * the order of the microbatches, 0, 1, .. m-1 (gpipe too, which elsewhere often runs them in
 * reverse). A parameter lives in one chunk, so its gradient is always the sum ((g0 + g1) + g2) + ..
 * in this order, whatever the schedule and the split: the sum is the same bit for bit. */
#ifndef HS_SCHED_SCHED_H
#define HS_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>

struct err;

#define INSTR_KINDS(X)                                                                             \
	X(FORWARD) X(BACKWARD) X(SEND_ACT) X(RECV_ACT) X(SEND_GRAD) X(RECV_GRAD) X(REDUCE) X(STEP)
#define INSTR_TIED_KINDS(X)                                                                        \
	X(SEND_TIED_GRAD) X(RECV_TIED_GRAD) X(SEND_TIED_VALUE) X(RECV_TIED_VALUE)

enum instr_kind {
#define X(name) INSTR_##name,
	INSTR_KINDS(X) INSTR_TIED_KINDS(X)
#undef X
		INSTR_COUNT
};

struct instr {
	enum instr_kind kind;
	int microbatch;
	int chunk;
	int peer; /* the other stage of a SEND or RECV; else -1 */
};

struct instr_list {
	struct instr *item;
	size_t n, cap;
};

#define INSTR_LIST_INIT                                                                            \
	{                                                                                          \
		NULL, 0, 0                                                                         \
	}

/* The third is the limit of chunks * microbatches. */
enum { SCHED_MAX_STAGES = 4096, SCHED_MAX_CHUNKS = 256, SCHED_MAX_MICROBATCHES = 1 << 20 };

/* A schedule is the order of the forwards and backwards; sched_build() adds the messages and the
 * end of the step. */
struct sched {
	const char *name;
	const char *help;
	bool chunked; /* takes more than one chunk */
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

/* The rows: i-th one (NULL past the end), by name (NULL when there is none), and the
 * default (1f1b). */
const struct sched *sched_at(size_t i);
const struct sched *sched_find(const char *name);
const struct sched *sched_default(void);

/* The complete list of one stage. `out` is emptied first and keeps its memory, so building again
 * allocates nothing; release it with instr_list_release(). On failure (arguments out of range,
 * memory) `out` is empty. */
int sched_build(const struct sched *s, int stages, int chunks, int microbatches, int stage,
		struct instr_list *out, struct err *e);
/* The list of an evaluation: the forward half only, microbatch after microbatch through the
 * chunks, whatever the schedule of training is. No REDUCE and no STEP. */
int sched_build_forward(int stages, int chunks, int microbatches, int stage, struct instr_list *out,
			struct err *e);
/* Adds what a trained embedding that is also the head needs to a list of sched_build(). */
int sched_add_tied(int stages, int stage, struct instr_list *l, struct err *e);
void instr_list_release(struct instr_list *l);

/* The largest number of microbatch activations in flight on a stage: between the begin of a FORWARD
 * and the end of its BACKWARD. Each is of one chunk. Messages that have arrived before their
 * FORWARD are not counted; there are at most as many of them as the sending stage may be ahead. */
int sched_in_flight(const struct sched *s, int stages, int chunks, int microbatches, int stage);

/* Where a SEND of `chunk` on `stage` arrives: the receiving stage and its chunk. False when nothing
 * is sent there (end of the model, or the same worker holds the next chunk). `forward`:
 * activations; else gradients. */
bool sched_target(int stages, int chunks, int stage, int chunk, bool forward, int *stage_p,
		  int *chunk_p);

const char *instr_name(enum instr_kind k); /* "forward", "send_act", ... */
bool instr_sends(enum instr_kind k);
bool instr_receives(enum instr_kind k);

#endif
