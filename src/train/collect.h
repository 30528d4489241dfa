/* SPDX-License-Identifier: Apache-2.0 */
/* collect.h - the training state of all workers, between two steps. */
#ifndef HS_TRAIN_COLLECT_H
#define HS_TRAIN_COLLECT_H

#include "train/trainer.h"

struct err;

/* Where the run goes back to when a worker is lost: at first its beginning, or the checkpoint with
 * which it goes on (`start` false). */
void train_begin_set(struct trainer *t, bool start);
/* Collects it into the snapshot, from which a checkpoint can be written. */
int train_collect(struct trainer *t, struct err *e);
/* After it became a checkpoint too, which began at clock `began`. */
void train_saved(struct trainer *t, int64_t began);

#endif
