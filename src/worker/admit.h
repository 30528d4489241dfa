/* SPDX-License-Identifier: Apache-2.0 */
/* admit.h - which of the connections that reach a worker it accepts: the coordinator, a neighbour
 * of the plan, a worker that measures the link. For guests_take(): each writes why not into `why`,
 * or leaves it empty. `who` is a struct admit. */
#ifndef HS_WORKER_ADMIT_H
#define HS_WORKER_ADMIT_H

#include "peers/guests.h"
#include "proto/protocol.h"

struct admit {
	const char *id;              /* of this worker */
	const char *coordinator_key; /* NULL: links without keys */
	const char *host;            /* of this machine, for messages */
	uint64_t job, epoch;         /* of the plan */
	const struct kept *kept;     /* whom it obeys; or NULL */
};

/* ctx: not used. */
void admit_coordinator(const void *who, const struct guest *g, const void *ctx, char *why,
		       size_t cap);
/* Whether a later coordinator of the run is among the guests. */
bool admit_later(const struct admit *s, const struct guests *g);
/* ctx: the plan (struct plan_message). A member of the previous stage, or one before this worker in
 * its own group, by its number and key; or one that PLAN lets connect the other way round. */
void admit_neighbour(const void *who, const struct guest *g, const void *ctx, char *why,
		     size_t cap);
/* ctx: the key of the worker that measures. */
void admit_probe(const void *who, const struct guest *g, const void *ctx, char *why, size_t cap);

#endif
