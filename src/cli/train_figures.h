/* SPDX-License-Identifier: Apache-2.0 */
/* train_figures.h - evaluations and rewards of a run: to metrics.jsonl, to the sinks of single
 * numbers (TensorBoard, MLflow), and to the screen. */
#ifndef HS_CLI_TRAIN_FIGURES_H
#define HS_CLI_TRAIN_FIGURES_H

#include "report/metrics.h"
#include "report/wandb.h"
#include "train/train.h"

struct figures_out {
	struct metrics *metrics;
	void *ctx;
	void (*put)(void *ctx, const char *name, int64_t step, double value);
	void (*say)(void *ctx, const char *line);
};

/* "PART/rewards/chosen" and the others */
void figures_scalars(const struct figures_out *o, const char *part, int64_t step,
		     const struct metrics_rewards *r);
/* OUTPUT/wandb, where `wandb_project` is given; else *w_p is NULL. */
int figures_wandb(const struct config *c, struct wandb **w_p, struct err *e);
/* Whether experts or routers of a mixture get adapters that merge can join (no DoRA). */
bool figures_on_experts(const struct train_info *i);
int figures_eval(const struct figures_out *o, const struct train_eval *r, struct err *e);

#endif
