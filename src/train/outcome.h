/* SPDX-License-Identifier: Apache-2.0 */
/* outcome.h - the counters and the place in the data after a step; pure. */
#ifndef HS_TRAIN_OUTCOME_H
#define HS_TRAIN_OUTCOME_H

#include "train/trainer.h"

/* What a step makes of t->st, if it is applied everywhere. */
struct outcome {
	struct train_state st;
	bool overflow; /* beyond float16's range: no sign of bad data or learning rate */
};
struct outcome outcome_of(const struct trainer *t, const struct train_step *s);

#endif
