/* SPDX-License-Identifier: Apache-2.0 */
/* worker_priv.h - what a worker knows of its job; for worker.c and microbatch.c. */
#ifndef HS_WORKER_WORKER_PRIV_H
#define HS_WORKER_WORKER_PRIV_H

#include "engine/exchange.h"
#include "engine/group_sum.h"
#include "pass/away.h"
#include "pass/park.h"
#include "pass/slots.h"
#include "engine/worker_model.h"
#include "engine/worker_times.h"
#include "worker/worker.h"
struct worker {
	const struct worker_env *env;
	struct dev *dev;
	struct plan_message plan;
	struct beat beat;
	struct orders orders;
	struct worker_model model;
	struct slots slots;
	struct park park;
	struct away away;
	struct exchange exchange;
	unsigned char *routers; /* microbatch.c: of each microbatch */
	size_t routers_cap;
	struct worker_times times;
	struct instr_list list;
	struct sched_shape shape; /* of the pipeline in the current round */
	int *shape_room;
	struct group_sum sum;          /* of gradients, over microbatches and members */
	bool planned, train, finished; /* train: the current round has a backward half */
	/* the record of the state that the model has; empty: none, or it is not whole */
	struct buf record;
	bool broken;          /* BROKEN was sent: all but FORGET and the end is ignored */
	uint64_t trained;     /* the last step of training, for messages */
	uint64_t parameters;  /* bytes on the device when the whole stage has been built */
	uint64_t free_before; /* bytes, before that; 0: the device's memory is the host's */
	float *logits;        /* (V), of a sampling round */
	int32_t *order;       /* [vocab] scratch of sample_token() */
	size_t logits_cap, order_cap;
};

#endif
