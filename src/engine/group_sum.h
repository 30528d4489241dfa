/* SPDX-License-Identifier: Apache-2.0 */
/* group_sum.h - the gradients of a worker's chunks, summed over its microbatches (grads.h) and over
 * the members of its group (sched/reduce.h). One array for each chunk, and one for the head. */
#ifndef HS_ENGINE_GROUP_SUM_H
#define HS_ENGINE_GROUP_SUM_H

#include "sched/reduce.h"
#include "engine/exchange.h"
#include "engine/grads.h"
#include "engine/worker_model.h"

struct err;
struct array_sum;

struct group_sum {
	struct exchange *exchange; /* borrowed */
	const struct worker_model *model;
	int chunks;
	struct grads *grads;   /* [chunks + 1] of the chunks, and of the head */
	struct array_sum *sum; /* [chunks + 1] */
	uint32_t *numbers;     /* [chunks + 1] of messages in this round */
	struct sums_due due;
	struct sum_terms terms; /* of the round */
	int microbatches;       /* of the round; 0: it does not train */
};

/* When the model has been built. */
int group_sum_begin(struct group_sum *g, struct exchange *x, const struct worker_model *m,
		    struct err *e);
/* A round; place[i] runs microbatch i (NULL: this worker runs all). */
int group_sum_round(struct group_sum *g, bool train, const int *place, int microbatches,
		    struct err *e);
/* The messages of other members in this round, for exchange_round(). */
const struct sums_due *group_sum_due(struct group_sum *g);
/* A backward pass, or the forward pass at the end of the model, has ended. */
int group_sum_backward(struct group_sum *g, int chunk, int m, struct err *e);
int group_sum_head(struct group_sum *g, int m, struct err *e);
/* SEND_SUMS and REDUCE */
int group_sum_send(struct group_sum *g, int chunk, struct err *e);
int group_sum_finish(struct group_sum *g, int chunk, struct err *e);
void group_sum_release(struct group_sum *g);

#endif
