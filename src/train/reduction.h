/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.h - the order in which a run adds its gradients (sched/sum.h), and how its groups do it
 * (sched/reduce.h). Decided once, before the first step; a run that is resumed keeps its order. */
#ifndef HS_TRAIN_REDUCTION_H
#define HS_TRAIN_REDUCTION_H

#include "job/checkpoint.h"
#include "job/placement.h"

struct err;

/* What a run that is not resumed has. auto: exact for an adapter, whose gradients are small beside
 * the model. Of all parameters the tree would keep about log2(microbatches) gradients more on the
 * device. */
enum sum_order reduction_order(const struct config *c);
/* Fills rules->reduce and p's reduce_order and reducer. `resume`: rules are those of a
 * checkpoint. */
int reduction_choose(const struct job *j, bool resume, struct rules *rules, struct placement *p,
		     struct err *e);

#endif
