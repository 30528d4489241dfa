/* SPDX-License-Identifier: Apache-2.0 */
/* nonfinite.h - where the first loss or gradient of a step that is not finite came from. */
#ifndef HS_TRAIN_NONFINITE_H
#define HS_TRAIN_NONFINITE_H

#include "train/trainer.h"

/* Such as "the loss of microbatch 3 in step 7, at stage 1", into t->nonfinite: of the first in a
 * row. The step is not in t->st yet. */
void nonfinite_note(struct trainer *t, uint64_t step);

#endif
