/* SPDX-License-Identifier: Apache-2.0 */
/* worker_state.h - a worker's parameters and optimizer states to the coordinator and back, in
 * parts and by name (STATE). */
#ifndef HS_WORKER_WORKER_STATE_H
#define HS_WORKER_WORKER_STATE_H

#include "model/stage.h"
#include "net/frame.h"
#include "net/net.h"
#include "optim/optim.h"

struct err;

struct worker_state {
	struct stage *chunk; /* [chunks], borrowed */
	int chunks;
	const struct optimizer *optim; /* NULL: nothing is trained */
	struct net *net;
	struct link *coordinator;
	uint32_t member; /* this worker, as frames number it */
	double timeout;  /* seconds to send one part; 0: for ever */
	float *number;   /* on their way to or from the device; mem_free */
	size_t cap;
};

int worker_state_load(struct worker_state *s, const struct frame *f, struct err *e);
int worker_state_send(struct worker_state *s, uint64_t job, uint64_t step, struct err *e);

#endif
