/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h - the token-mean loss of a model on data; of preferences (runtime_options.prefer) the
 * mean over the rows, against the model without its adapter. */
#ifndef HS_RUNTIME_EVALUATE_H
#define HS_RUNTIME_EVALUATE_H

#include "data/batch.h"
#include "runtime/runtime.h"

struct eval_result {
	double loss;                         /* mean over trained tokens; perplexity is exp(loss) */
	uint64_t tokens, trained, sequences; /* trained: rows, of preferences */
	uint64_t right;                      /* likeliest tokens; rows of the right sign */
	double reward[2];                    /* sums over the chosen and the rejected answers, */
	uint64_t rewarded[2];                /* and how many */
	double seconds;
};

/* Over every training example of epoch 0. `part` (may be NULL) is called with the progress;
 * non-zero from it stops with ERR_CANCELLED. */
typedef int (*eval_part_fn)(void *ctx, uint64_t done, uint64_t all,
			    const struct eval_result *so_far);
int evaluate_batches(struct runtime *r, struct batches *b, eval_part_fn part, void *ctx,
		     struct eval_result *res_p, struct err *e);

#endif
