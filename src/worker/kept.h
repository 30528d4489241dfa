/* SPDX-License-Identifier: Apache-2.0 */
/* kept.h - what a worker keeps when its coordinator is gone, or the members of the job change: its
 * part of the training state after the last step, with the coordinator's record of that step; and
 * whom it obeys.
 *
 * The parts are payloads of STATE, in memory of this process, and need no plan. A coordinator that
 * is started anew collects them before the first PLAN (SAVE). They are dropped when the worker has
 * the record of a state under the new plan, or when another run begins. One thread uses it. */
#ifndef HS_WORKER_KEPT_H
#define HS_WORKER_KEPT_H

#include "base/buf.h"
#include "engine/worker_model.h"
#include "proto/hello.h"
#include "proto/record.h"

struct err;

struct kept_part {
	void *payload;
	size_t n;
};

struct kept {
	/* the coordinator that this worker obeys: of this run no other one with a term that is not
	 * greater. 0: none */
	uint64_t run, job;
	uint32_t term;
	bool whole; /* there is a state; else the fields below say nothing */
	bool owed;  /* and its coordinator is gone: to the next one, which has not taken it yet */
	bool other; /* the last job was of no run: a profile */
	struct state_name name;
	struct buf record; /* as it came */
	uint64_t plan;     /* the epoch of the plan in which it was held, as this stage */
	int stage;
	bool part; /* other members of the group have the rest of it */
	struct kept_part *item;
	size_t n, cap;
	uint64_t bytes;
};

/* Why the coordinator of a run, with the epoch of its HELLO, is not obeyed; "": it may be. */
void kept_refuse(const struct kept *k, uint64_t run, uint64_t epoch, uint64_t job, char *why,
		 size_t cap);
/* Whether the one that is obeyed is an earlier one of this run. */
bool kept_precedes(const struct kept *k, uint64_t run, uint64_t epoch);
/* From now on. What was kept of another run is dropped. */
void kept_obey(struct kept *k, uint64_t run, uint64_t epoch, uint64_t job);
/* Takes the state of a model, whose record is `record`. What was kept before stays where this
 * fails. Nothing is taken, and nothing stays, where less than twice so much memory is free. */
int kept_take(struct kept *k, struct worker_model *m, const struct buf *record,
	      const struct plan_message *p, uint64_t epoch, struct err *e);
void kept_drop(struct kept *k); /* the state */
/* Into a WELCOME to a coordinator of this run. */
void kept_tell(const struct kept *k, uint64_t run, struct welcome *w);
/* RECORD and STATE frames. */
int kept_send(struct kept *k, struct orders *o, struct net *net, struct err *e);
void kept_release(struct kept *k);

#endif
