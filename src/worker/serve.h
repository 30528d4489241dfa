/* SPDX-License-Identifier: Apache-2.0 */
/* serve.h - a worker from its listening socket on: waits for the coordinator, accepts the previous
 * stage, connects to the next, and runs the job.
 *
 * The same whether the worker is a thread of the coordinator's process, a process it started, or
 * one on another machine. */
#ifndef HS_WORKER_SERVE_H
#define HS_WORKER_SERVE_H

#include "model/source.h"
#include "net/net.h"
#include "proto/ways.h"

#include <signal.h>
#include <stdatomic.h>

struct err;
struct kept;

struct serve {
	struct net *net; /* listening */
	/* where, as net_listen gave it. NULL: a transport without addresses */
	const char *listens;
	const char *id, *device; /* "cpu", "cuda:0", "auto" */
	/* orders are accepted from this one only; NULL: a link without keys */
	const char *coordinator_key;
	/* steps from one line about its part to the next; 0: no lines, below 0: by time */
	int64_t log_every;
	/* seconds to wait for the coordinator and the neighbours; 0: 60 */
	double join_timeout;
	double coordinator_timeout;         /* for the coordinator alone; 0: join_timeout */
	const struct weight_source *source; /* NULL: what the coordinator offers, over the link */
	/* a path that may hold the same model here: read where the hashes agree. MAY be NULL */
	const char *model;
	const char *cache_dir; /* NULL: the default */
	double cache_limit;    /* GiB of layers kept there; 0: no limit */
	/* A worker that was invited: its link to the coordinator (up; given away), where to connect
	 * for relayed links, and whether the keys that may connect come from PLAN and PROBE. NULL,
	 * NULL, false: the coordinator connects, and the configuration says all that */
	struct link *called;
	const char *relay;
	bool by_plan;
	struct ways ways; /* where it may connect; zeros: anywhere */
	/* set from a signal: ask the coordinator to save and finish. MAY be NULL */
	const volatile sig_atomic_t *stop;
	struct kept *kept; /* state that outlives its coordinator; MAY be NULL */
	bool *joined_p;    /* set when it takes part in a job. MAY be NULL */
	/* set by another thread: the coordinator will not connect. MAY be NULL */
	const atomic_bool *called_off;
};

/* One job from the coordinator's HELLO to its FINISH. */
int worker_serve(const struct serve *o, struct err *e);

#endif
