/* SPDX-License-Identifier: Apache-2.0 */
/* worker_advice.h - what to do when a worker's device has too little memory. */
#ifndef HS_WORKER_WORKER_ADVICE_H
#define HS_WORKER_WORKER_ADVICE_H

#include "dev/dev.h"
#include "engine/orders.h"

struct err;

/* Adds to an error of ERR_NOMEM what was needed and what would make it fit. `shape`: of the last
 * round (no microbatches: there was none); `d` MAY be NULL; parameters: bytes of the stage. */
void worker_advice(const struct plan_message *p, const struct orders *o,
		   const struct sched_shape *shape, struct dev *d, uint64_t parameters,
		   struct err *e);

#endif
