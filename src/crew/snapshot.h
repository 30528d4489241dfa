/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h - the newest training state of all members that is whole, in the coordinator's memory:
 * the state to which a job goes back when a member is lost.
 *
 * The job's own arrays (job.h: value, state) hold it, so a checkpoint is written from it and a
 * resumed run begins with it. While the next one is collected it goes into a second set of arrays
 * (`memory`), and the two change places when all of it is there. Without them (`disk`, `off`) it is
 * collected over the old one: a loss at that moment leaves none in memory, and the newest
 * checkpoint on disk is what there is. */
#ifndef HS_CREW_SNAPSHOT_H
#define HS_CREW_SNAPSHOT_H

#include "job/checkpoint.h"
#include "job/job.h"

struct err;

struct snapshot {
	struct job *job; /* borrowed */
	bool twice;      /* there are two sets of arrays */
	bool whole;      /* the job's arrays hold a set */
	/* the set is the beginning of a new run, which every worker makes for itself: nothing is
	 * in the arrays */
	bool start;
	struct train_state st; /* of the set */
	void **next;           /* [nparam * (1 + PARAM_STATES)]; NULL until it is needed */
};

/* The state with which the run begins; `start`: as above. */
void snapshot_init(struct snapshot *s, struct job *j, bool twice, const struct train_state *st,
		   bool start);
void snapshot_release(struct snapshot *s);
/* A set is collected from now on: allocates what it needs. */
int snapshot_begin(struct snapshot *s, struct err *e);
/* Where array `index` of parameter `param` goes meanwhile (job_kept()). */
void *snapshot_room(const struct snapshot *s, const struct trained_param *p, int index);
/* All of it is there: it is the set from now on. */
void snapshot_end(struct snapshot *s, const struct train_state *st);
uint64_t snapshot_bytes(const struct job *j);

#endif
