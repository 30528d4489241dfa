/* SPDX-License-Identifier: Apache-2.0 */
/* beforehand.h - the reference of preferences where more is trained than adapters: the rounds of
 * refer.h for the whole run, before its first step (train/prior.h). */
#ifndef HS_TRAIN_BEFOREHAND_H
#define HS_TRAIN_BEFOREHAND_H

#include "train/trainer.h"

/* While the stages have the model as it was before the run. Nothing is done where it is not needed,
 * or known. */
int beforehand(struct trainer *t, struct err *e);

#endif
