/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h - the newest training state of all members that is whole: the state to which a job
 * goes back when a member is lost.
 *
 * The job's own arrays (job.h: value, state) hold it, so a checkpoint is written from it and a
 * resumed run begins with it. Where there is memory for two sets, the next one is collected into a
 * second set of arrays, and the two change places when all of it is there. Else the next one goes
 * into files (job/state_files.h), and the arrays become mappings of these: the coordinator needs
 * memory for a few messages only. Where the disk does not take it either, it is collected over the
 * old one: a loss at that moment leaves none, and the newest checkpoint on disk is what there is.
 */
#ifndef HS_CREW_SNAPSHOT_H
#define HS_CREW_SNAPSHOT_H

#include "job/checkpoint.h"
#include "job/job.h"
#include "job/state_files.h"

struct err;

struct snapshot {
	struct job *job; /* borrowed */
	bool twice;      /* in memory: there are two sets of arrays */
	const char *dir; /* where the folder for files is; NULL: there are none */
	bool over;       /* the disk is full: over the old one */
	bool whole;      /* the job's arrays hold a set */
	/* the set is the beginning of a new run, which every worker makes for itself: nothing is
	 * in the arrays */
	bool start;
	struct train_state st;    /* of the set */
	void **next;              /* [nparam * (1 + PARAM_STATES)]; NULL until it is needed */
	struct state_files files; /* that are written */
};

/* The state with which the run begins; `start`: as above. `dir`: of the run, where the next sets go
 * into files; NULL: into memory, twice. */
void snapshot_init(struct snapshot *s, struct job *j, const char *dir, const struct train_state *st,
		   bool start);
void snapshot_release(struct snapshot *s);
/* A set is collected from now on: allocates what it needs. */
int snapshot_begin(struct snapshot *s, struct err *e);
/* Bytes [off, off+n) of array `index` of parameter `param` (job_kept()). */
int snapshot_put(struct snapshot *s, const struct trained_param *p, int index, uint64_t off,
		 const void *v, uint64_t n, struct err *e);
/* All of it is there: it is the set from now on. */
int snapshot_end(struct snapshot *s, const struct train_state *st, struct err *e);
uint64_t snapshot_bytes(const struct job *j);

#endif
