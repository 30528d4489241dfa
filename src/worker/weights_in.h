/* SPDX-License-Identifier: Apache-2.0 */
/* weights_in.h - a worker's parameters: what the coordinator offers is read from a model file of
 * its own or from its cache, or fetched over the link. The exchange and the cache are described
 * in coord/weights_out.h. */
#ifndef HS_WORKER_WEIGHTS_IN_H
#define HS_WORKER_WEIGHTS_IN_H

#include "model/source.h"
#include "net/net.h"
#include "proto/protocol.h"

struct err;
struct weights_in;

struct weights_in_options {
	struct link *coordinator;
	const struct plan_message *plan;
	const char *model;     /* a path that may hold the same model; NULL: none */
	const char *cache_dir; /* NULL: $XDG_CACHE_HOME/heteroshard, else ~/.cache/heteroshard */
	uint64_t cache_limit;  /* bytes that may stay in the cache afterwards; 0: any number */
	uint64_t job, epoch;
	uint64_t *forget; /* set when FORGET comes in the place of layers (engine/orders.h) */
};

/* Takes the OFFER and fetches what is missing. */
int weights_in_open(const struct weights_in_options *o, struct weights_in **w_p, struct err *e);
uint64_t weights_in_bytes(const struct weights_in *w);   /* of everything offered */
uint64_t weights_in_fetched(const struct weights_in *w); /* of what came over the link */
struct weight_source weights_in_source(struct weights_in *w);
void weights_in_close(struct weights_in *w); /* NULL is allowed */

#endif
