/* SPDX-License-Identifier: Apache-2.0 */
/* collect.h - the training state of all workers, between two steps. */
#ifndef HS_TRAIN_COLLECT_H
#define HS_TRAIN_COLLECT_H

#include "train/trainer.h"

struct err;

/* Collects it into the snapshot, from which a checkpoint can be written. */
int train_collect(struct trainer *t, struct err *e);

#endif
