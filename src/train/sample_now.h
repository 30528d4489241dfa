/* SPDX-License-Identifier: Apache-2.0 */
/* sample_now.h - the sample prompts' answers (samples.h), with the model as it is after t->st. */
#ifndef HS_TRAIN_SAMPLE_NOW_H
#define HS_TRAIN_SAMPLE_NOW_H

#include "train/trainer.h"

struct err;

int sample_now(struct trainer *t, struct err *e);

#endif
