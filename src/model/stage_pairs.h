/* SPDX-License-Identifier: Apache-2.0 */
/* stage_pairs.h - see stage_pairs.c; for stage.c. */
#ifndef HS_MODEL_STAGE_PAIRS_H
#define HS_MODEL_STAGE_PAIRS_H

#include "model/stage.h"

/* x (N,C): what goes into the head. Sets loss, hits and score of the slot, and the first S of
 * slot->pair to the answers' log-probabilities. *weight_p: of the trained rows' gradients, or
 * DEV_NONE without training. */
int stage_pairs_weigh(struct slot *sl, const struct tape *t, struct tensor *x,
		      struct dev_ref *weight_p, struct err *e);

#endif
