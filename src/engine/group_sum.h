/* SPDX-License-Identifier: Apache-2.0 */
/* group_sum.h - the gradients of a worker's chunks, summed over its microbatches (grads.h) and over
 * the members of its group (sched/reduce.h). One array for each part of a chunk (sched/sched.h),
 * and behind them one for the head.
 *
 * Where the group shares the training state (tensor/state_cut.h), a member gets the sums of what it
 * owns; block sums of the gradient norm go to the group's first member, and new values from their
 * owners to the others. These messages are SUM frames too: array a of the sums is number a, its
 * values are number arrays + a, and the block sums 2 arrays. Behind them are
 * those of gather.h, which brings the values of gathered parameters. */
#ifndef HS_ENGINE_GROUP_SUM_H
#define HS_ENGINE_GROUP_SUM_H

#include "sched/reduce.h"
#include "engine/exchange_sum.h"
#include "engine/gather.h"
#include "engine/grads.h"
#include "engine/hosted.h"
#include "engine/worker_model.h"

struct err;
struct array_sum;

struct group_sum {
	struct exchange *exchange; /* borrowed */
	const struct worker_model *model;
	int parts;             /* of a chunk */
	int arrays;            /* the head's is the last one */
	struct grads *grads;   /* [arrays] */
	struct grads *experts; /* [parts] of dealt experts that are here; else NULL */
	struct array_sum *sum; /* [arrays] */
	struct gather gather;
	struct hosted hosted;
	struct grad_pool pool; /* of arrays whose chunk is gathered */
	uint32_t *numbers;     /* of messages in this round, by number of array */
	size_t *most;          /* bytes of one of them, likewise */
	int next, sent;        /* arrays: not complete; handed to the others, in order of `turn` */
	int *turn;             /* [arrays] */
	int home;              /* an array whose gradients go to the host next; -1: none */
	struct sums_due due;
	struct sum_terms terms; /* of the round */
	bool shared;            /* the group shares the training state */
	bool sums;              /* the gradients are summed over members, of which this is one */
	struct dev_buf **room;  /* [rooms] numbers on the device (group_there.h); MAY be NULL */
	size_t rooms, room_cap;
	unsigned char *bytes; /* (cap) on their way */
	size_t cap;
	int microbatches; /* of the round; 0: it does not train */
};

/* When the model has been built. */
int group_sum_begin(struct group_sum *g, struct exchange *x, const struct worker_model *m,
		    struct err *e);
/* A round; place[i] runs microbatch i (NULL: this worker runs all). */
int group_sum_round(struct group_sum *g, bool train, const int *place, int microbatches,
		    struct err *e);
/* The messages of other members in this round, for exchange_round(). */
const struct sums_due *group_sum_due(struct group_sum *g);
/* A backward pass has ended, or a part of the last one (of a whole one: parts 0); or the forward
 * pass at the end of the model. */
int group_sum_backward(struct group_sum *g, int chunk, int m, int part, int parts, struct err *e);
/* In how many parts the backward pass of microbatch m runs, where the schedule does not say. */
int group_sum_parts(const struct group_sum *g, int m);
int group_sum_head(struct group_sum *g, int m, struct err *e);
/* Where experts are dealt: the end of the model has had its backward pass. */
int group_sum_end(struct group_sum *g, int m, struct err *e);
/* The experts of a part have had their backward pass of microbatch m. */
int group_sum_experts(struct group_sum *g, int m, int part, struct err *e);
/* SEND_SUMS, REDUCE, SEND_VALUES, GATHER or RELEASE. */
int group_sum_execute(struct group_sum *g, const struct instr *i, struct err *e);
/* Shared state, behind STEP: sends the new values that are owned here, and gets the others'. */
int group_sum_values(struct group_sum *g, struct err *e);
/* Before NORM: the squared gradient norms of the stage's layers, on the group's first member
 * (m->entry). The others have the same gradients; where the state is shared, they send their block
 * sums. */
int group_sum_norms(struct group_sum *g, struct worker_model *m, struct err *e);
/* Before NORM, and before others add to gradients: what this worker alone has added up is where its
 * optimizer is. */
int group_sum_complete(struct group_sum *g, struct err *e);
/* Before a layer of the model is computed forward (stage.h): its new values are on the device. */
int group_sum_before(struct group_sum *g, int layer, struct err *e);
/* Takes what the others have sent, without waiting; values come as long as the device computes. */
int group_sum_advance(struct group_sum *g, struct err *e);
void group_sum_release(struct group_sum *g);

#endif
