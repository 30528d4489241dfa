/* SPDX-License-Identifier: Apache-2.0 */
/* start.h - who computes: joining, the plan and its placement, rounds, plans and layers out. The
 * same for the first plan of a run and for another one, after its members have changed. */
#ifndef HS_TRAIN_START_H
#define HS_TRAIN_START_H

#include "train/trainer.h"

struct err;

/* Whether other processes compute. */
bool start_is_cluster(const struct trainer *t);
/* `resume`: as of kept_state_begin(), which is called where the run may go on from what workers
 * have kept. */
int start_join(struct trainer *t, const char *resume, struct err *e);
/* Chooses the layers of each stage, unless the caller of train_run() did: by the configuration or
 * by a planner with the measured profile. */
int start_place(struct trainer *t, bool resume, struct err *e);
/* Another plan, for the workers that are there now; the run keeps its rules. `with` (MAY be NULL):
 * this plan, which becomes the trainer's. ERR_USAGE: they cannot hold the model, or are fewer than
 * min_workers. */
int start_place_again(struct trainer *t, struct job_plan *with, struct err *e);
/* Whether the workers that are there now can go on, and the predicted seconds of a step; 0: nothing
 * was measured. */
int start_would_do(struct trainer *t, double *seconds_p, struct err *e);
/* The same; *seconds_p infinite: they cannot. */
int start_would_help(struct trainer *t, double *seconds_p, struct err *e);
/* Whether somebody is there who was not measured, where the others were; then all are, between
 * session_regroup() and the next plan. */
bool start_somebody_new(const struct trainer *t);
int start_measure_new(struct trainer *t, struct err *e);
int start_rounds(struct trainer *t, struct err *e);
/* For the sink; `resume` as in struct train_info. Lists live in the trainer's arena. */
int start_info(struct trainer *t, const char *resume, struct train_info *i_p, struct err *e);
/* Noise by the run's rules (job/checkpoint.h), into the options of the job. */
void start_noise(struct trainer *t);

#endif
