/* SPDX-License-Identifier: Apache-2.0 */
/* gather.h - the values of a worker's chunks where the members of its group store them in pieces
 * (SHARD_PARAMETERS, tensor/gathered.h): SEND_VALUES, GATHER and RELEASE.
 *
 * There is memory for two chunks: one that is computed, and one whose pieces arrive meanwhile.
 * Chunk c uses the part c % 2 of it. The whole gradients of a chunk that is trained are lent in the
 * same way, from the chunk's GATHER to its REDUCE; what stays are the sums of what is owned.
 *
 * Own pieces in the memory of the host (param_hosted()) are uploaded while the device computes, as
 * far as there is time before GATHER.
 *
 * Pieces travel in SUM frames: array first_array + 2 chunk + part (sched/sched.h: 0 before
 * forwards, 1 before backwards). A member that computes nothing in the round gets a byte instead of
 * a piece, so that nobody is more than a chunk ahead of another. */
#ifndef HS_ENGINE_GATHER_H
#define HS_ENGINE_GATHER_H

#include "engine/exchange_sum.h"
#include "engine/worker_model.h"

struct err;

/* What a chunk gathers: parameters, the largest first. */
struct gather_chunk {
	struct param **param; /* [n] */
	size_t n;
};

/* Memory that chunks use in turn: for the j-th parameter of each. */
struct gather_memory {
	struct dev_buf **data, **scales, **grad; /* [n] */
	size_t n;
};

struct gather {
	struct exchange *exchange; /* borrowed */
	const struct worker_model *model;
	int me, members;
	int first_array;
	struct gather_chunk *chunk; /* [model->chunks]; NULL: nothing is gathered */
	struct gather_memory memory[2];
	bool computes[STATE_MEMBERS]; /* in this round */
	bool train;
	int coming, part; /* the chunk whose pieces arrive; -1: none */
	bool came[STATE_MEMBERS];
	size_t own; /* of the own piece: parameters that have been uploaded */
	/* bytes from the memory of the host, and those of them that came beside computing */
	uint64_t moved, beside;
	/* bytes from other members, and those of them that came while this one computed */
	uint64_t received, early;
	unsigned char *bytes; /* (cap) a piece on its way */
	size_t cap;
};

/* When the model has been built; does nothing where its values are whole. */
int gather_begin(struct gather *g, struct exchange *x, const struct worker_model *m,
		 int first_array, struct err *e);
static inline bool gather_is_on(const struct gather *g) { return g->chunk; }
/* A round; place[i] runs microbatch i. */
void gather_round(struct gather *g, bool train, const int *place, int microbatches);
/* The piece of a chunk that member k sends here in this round: its bytes, and messages. */
size_t gather_bytes(const struct gather *g, int chunk, int k);
uint32_t gather_messages(const struct gather *g, int chunk, int k);

int gather_send(struct gather *g, int chunk, int part, struct err *e);   /* SEND_VALUES */
int gather_finish(struct gather *g, int chunk, int part, struct err *e); /* GATHER */
/* RELEASE; of a worker alone the chunk's gradients too. */
void gather_release(struct gather *g, int chunk);
/* Behind REDUCE: the chunk's whole gradients are not needed any more. */
void gather_take_gradients(struct gather *g, int chunk);
/* Takes the pieces that are here, without waiting; own ones are uploaded as long as the device
 * computes. */
int gather_advance(struct gather *g, struct err *e);
void gather_end(struct gather *g);

#endif
