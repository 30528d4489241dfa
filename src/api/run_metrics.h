/* SPDX-License-Identifier: Apache-2.0 */
/* run_metrics.h - a run's events as lines of metrics.jsonl, and its plan.json: for hs_train() and
 * for the command `train`. */
#ifndef HS_API_RUN_METRICS_H
#define HS_API_RUN_METRICS_H

#include "report/metrics.h"
#include "train/train.h"

/* Opens DIR/metrics.jsonl, where a run that is resumed goes on, and writes DIR/plan.json. */
int run_metrics_open(const char *dir, const struct train_info *i, struct metrics **m_p,
		     struct err *e);
int run_plan_write(const char *dir, const struct train_info *i, struct err *e);

struct metrics_rewards run_rewards(const struct train_rewards *r);
/* `w` is used by what is returned where there are preferences. */
struct metrics_step run_metrics_of(const struct train_step *s, struct metrics_rewards *w);
int run_metrics_eval(struct metrics *m, const struct train_eval *v, struct err *e);
/* Steps that are computed again go, and the change is a line. */
int run_metrics_change(struct metrics *m, const struct train_change *c, struct err *e);

#endif
