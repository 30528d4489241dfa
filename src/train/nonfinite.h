/* SPDX-License-Identifier: Apache-2.0 */
/* nonfinite.h - where the first loss or gradient of a step that is not finite came from. */
#ifndef HS_TRAIN_NONFINITE_H
#define HS_TRAIN_NONFINITE_H

#include "job/placement.h"
#include "train/round.h"

/* For a message: "the loss of microbatch 3 in step 7, at stage 1". */
void nonfinite_find(const struct rounds *p, const struct placement *pl, uint64_t step, char *out,
		    size_t cap);

#endif
