/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - what the parts of a run share: train.c (the loop), start.c (who computes, the first
 * time and whenever the members change), recover.c (going on after a loss). */
#ifndef HS_TRAIN_TRAINER_H
#define HS_TRAIN_TRAINER_H

#include "base/arena.h"
#include "base/buf.h"
#include "coord/session.h"
#include "crew/snapshot.h"
#include "plan/drift.h"
#include "proto/record.h"
#include "survey/judge.h"
#include "train/round.h"
#include "train/save.h"
#include "crew/snapshots.h"
#include "train/train.h"

enum { RECENT = 5 /* steps whose longest sets the time limit of a step */ };

struct trainer {
	const struct config *cfg;
	const struct train_options *o;
	const struct train_sink *sink;
	struct job *job;
	struct session *ses;
	struct placement *place;
	int *worker; /* [rows] the member that has each row of `place` */
	struct job_plan job_plan;
	bool planned;
	struct buf profile; /* of all workers, as JSON; empty: nothing was measured */
	struct judge judge; /* when planned */
	struct drift drift; /* of the workers' speeds (train/speeds.h) */
	double moving;      /* what a move took, over what was estimated; 1: there was none */
	double *usual;      /* [members] seconds a token, where nothing was measured */
	struct drift_sample *sample;  /* [members] of a step */
	struct seat_spec *seat;       /* [members] */
	struct train_state st, first; /* now, and where the run began */
	struct snapshot set;          /* to which the run goes back */
	struct snapshots snapshots;
	bool stays;              /* the job goes on when a worker is lost */
	char identity[HASH_HEX]; /* checkpoint_identity() */
	struct buf record;       /* of a state, for the workers (kept_state.h) */
	bool kept;               /* the run began with a state that the workers had kept */
	/* the step whose line in the metrics, and what follows it, is still to be done; 0: none */
	uint64_t owed;
	struct record_line line;
	uint64_t back; /* samples of this step and later ones go with the next step; 0: none do */
	struct saver saver;
	struct rounds rounds;
	struct prior prior;    /* the reference of preferences, where it is known (beforehand.h) */
	char nonfinite[256];   /* where the steps in a row that were not finite began */
	double recent[RECENT]; /* seconds of the last steps, in turn */
	bool fresh;            /* the next step is the first one with its plan */
	double first_step;     /* seconds of the longest of those; 0: there was none */
	double rate;           /* seconds per token, smoothed, for the ETA */
	int64_t began;
	bool told_leaving;
	/* of the run: the step of the last checkpoint, and of the last evaluation in training */
	uint64_t saved, evaluated;
	unsigned fruitless; /* times that it went on without a step in between */
	struct arena arena;
	struct train_result r;
};

#endif
