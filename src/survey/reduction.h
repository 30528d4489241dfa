/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.h - the order in which a run adds its gradients (sched/sum.h), and how its groups do it
 * (sched/reduce.h). Decided once, before the first step; a run that is resumed keeps its order. */
#ifndef HS_SURVEY_REDUCTION_H
#define HS_SURVEY_REDUCTION_H

#include "job/checkpoint.h"
#include "job/placement.h"

struct err;

/* What a run that is not resumed has where nothing was measured. auto: exact for an adapter, whose
 * gradients are small beside the model. Of all parameters the tree would keep about
 * log2(microbatches) gradients more on the device. With measurements the planner decides
 * (plan_options.order_auto). */
enum sum_order reduction_order(const struct config *c);
/* Fills rules->reduce and p's reduce_order, reduce_dtype, reducer and parts. `auto_order`: what
 * `auto` is here. `resume`: rules are those of a checkpoint. `collective`: the links have sums of
 * their own (net_group_make). */
int reduction_choose(const struct job *j, enum sum_order auto_order, bool resume, bool collective,
		     struct rules *rules, struct placement *p, struct err *e);
/* A run whose checkpoint is of version 1 has one member a stage: its rules know no groups. */
int reduction_resumes(const struct config *c, const struct rules *rules, const struct placement *p,
		      bool allow_changes, struct err *e);

#endif
