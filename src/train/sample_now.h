/* SPDX-License-Identifier: Apache-2.0 */
/* sample_now.h - the sample prompts' answers (samples.h), with the model as it is after t->st. */
#ifndef HS_TRAIN_SAMPLE_NOW_H
#define HS_TRAIN_SAMPLE_NOW_H

#include "train/trainer.h"

struct err;

int sample_now(struct trainer *t, struct err *e);
/* The run is at t->st again: samples of later steps go with the next step, or at the end. Not
 * before: a coordinator that is killed may go on from later steps, which workers still have. */
void sample_go_back(struct trainer *t);
void sample_cut(struct trainer *t);

#endif
