/* SPDX-License-Identifier: Apache-2.0 */
/* refer.h - the round before a round of preferences: where the loss of the job needs a reference,
 * the same microbatches go through the model without its adapters (references.h keeps the result).
 */
#ifndef HS_TRAIN_REFER_H
#define HS_TRAIN_REFER_H

#include "train/round.h"

/* For the n microbatches of a round to come, of which `at` gives the i-th (valid until its next
 * call): of training step `step`, or with 0 the round `i` of an evaluation. What is known of them
 * beforehand is not computed again. */
int refer_each(struct rounds *p, uint32_t n, uint64_t step, size_t i,
	       int (*at)(void *ctx, uint32_t i, struct microbatch *mb_p, struct err *e), void *ctx,
	       struct err *e);
int refer_all(struct rounds *p, const struct microbatch *mb, size_t n, uint64_t step,
	      struct err *e);

#endif
