/* SPDX-License-Identifier: Apache-2.0 */
/* worker_log.h - the log of a worker on its own machine: its coordinator, its layers, its progress,
 * its end. Through log.h. */
#ifndef HS_PASS_WORKER_LOG_H
#define HS_PASS_WORKER_LOG_H

#include "proto/protocol.h"

/* The figures of a training step of this worker. */
struct worker_step {
	uint64_t step, tokens;
	int64_t begin, end; /* clock_now() */
	const struct stepped_message *times;
};

struct worker_log {
	const char *id;             /* NULL: no lines */
	int64_t every;              /* steps from one line to the next; below 0: by time */
	int64_t began;              /* of the training */
	int64_t told;               /* when the last line was written */
	int64_t lasted, busy, wait; /* nanoseconds since the last line */
	uint64_t step, tokens, all_tokens;
	uint64_t sent, received; /* bytes, to and from neighbours */
};

void worker_log_joined(struct worker_log *l, const char *host, const char *address, const char *way,
		       const char *backend, const char *device, uint64_t memory);
/* READY: the stage has been built. `fetched` of `bytes` of its parameters came over the link. */
void worker_log_ready(struct worker_log *l, const struct plan_message *p, uint64_t bytes,
		      uint64_t fetched);
void worker_log_step(struct worker_log *l, const struct worker_step *s);
void worker_log_finished(const struct worker_log *l);

#endif
