/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h - the process (or thread) that drives exactly one device: builds its stage and executes
 * the schedule's list.
 *
 * It receives orders from one coordinator over one link, and exchanges activations and gradients
 * with the workers of the previous and the next stage over other links. It decides nothing: the
 * schedule says what to compute, STEP what to apply. */
#ifndef HS_WORKER_WORKER_H
#define HS_WORKER_WORKER_H

#include "model/source.h"
#include "net/net.h"
#include "proto/protocol.h"
#include "engine/exchange.h"
#include "worker/kept.h"
#include "pass/worker_log.h"

#include <signal.h>

struct err;

struct worker_env {
	struct net *net;
	struct link *coordinator; /* borrowed, up */
	uint64_t job;             /* as the coordinator numbered it */
	uint64_t epoch;           /* of its HELLO */
	struct kept *kept;        /* MAY be NULL: nothing is kept */
	const char *device;       /* "cpu", "cuda:0" */
	const char *cache_dir;    /* NULL: the default */
	/* The links to the members of the previous stage, of the next one and of the worker's own
	 * in the crew of the plan; all are borrowed. Called once after each PLAN. */
	int (*neighbours)(void *ctx, const struct plan_message *p, struct peers *before_p,
			  struct peers *behind_p, struct peers *beside_p, struct err *e);
	/* A process may have connected: called between messages of the coordinator, and now and
	 * then while one is waited for. `refuse`: nobody is expected. MAY be NULL. */
	void (*visitors)(void *ctx, bool refuse);
	void *ctx;
	const struct weight_source
		*source; /* where parameters come from; NULL: weights() returns it */
	/* Called once after each PLAN, when `source` is NULL. The source must stay valid until the
	 * stages have been built. */
	int (*weights)(void *ctx, const struct plan_message *p, struct weight_source *src_p,
		       struct err *e);
	/* FORGET: nothing of the plan is used any more; links and source are closed. */
	void (*forget)(void *ctx, uint64_t epoch);
	/* The neighbour whose link is lost, or could not be made; -1: not known. MAY be NULL. */
	int (*lost)(void *ctx);
	/* Where a callback that waits for the coordinator notes that FORGET has come, with its
	 * epoch, before it returns ERR_CANCELLED. */
	uint64_t *forgets;
	/* PROBE, before PLAN: measures the link to another worker, or answers one that
	 * measures (link_probe.h). */
	int (*probe)(void *ctx, const struct frame *f, struct err *e);
	/* Called after READY was sent, and after a training step. MAY be NULL. */
	void (*ready)(void *ctx, const struct plan_message *p);
	void (*stepped)(void *ctx, const struct worker_step *s);
	/* set from a signal: the coordinator is asked to save and finish. MAY be NULL */
	const volatile sig_atomic_t *stop;
	/* seconds a neighbour or the coordinator may take to answer within a step; 0: no limit */
	double timeout;
};

/* Serves one job, from the first PLAN to FINISH. When another worker is lost the coordinator is
 * told, and decides: it sends FORGET, and another PLAN. On any other failure the reason has been
 * sent to the coordinator (ABORT); where that succeeded, the code is ERR_CANCELLED. */
int worker_run(const struct worker_env *env, struct err *e);

#endif
