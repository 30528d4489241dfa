/* SPDX-License-Identifier: Apache-2.0 */
/* worker_advice.h - what a worker says of its device's memory: what to do when it has too little,
 * and what was moved to and fro. */
#ifndef HS_WORKER_WORKER_ADVICE_H
#define HS_WORKER_WORKER_ADVICE_H

#include "dev/dev.h"
#include "engine/orders.h"

struct err;
struct worker;

/* Adds to an error of ERR_NOMEM what was needed and what would make it fit. `shape`: of the last
 * round (no microbatches: there was none); `d` MAY be NULL; parameters: bytes of the stage. */
void worker_advice(const struct plan_message *p, const struct orders *o,
		   const struct sched_shape *shape, struct dev *d, uint64_t parameters,
		   struct err *e);

/* What the driver has taken beyond the bytes of buffers: kernels, and memory in whole pieces. */
uint64_t worker_beyond_buffers(const struct worker *w);
/* How much of what was offloaded or gathered came and went while the device computed. */
void worker_say_moved(const struct worker *w);

#endif
