/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - how good a prediction was: what the plan said of each step against what was measured.
 *
 * A step's prediction is the plan's time for the mean step, times the tokens it really had. The
 * first step of a run warms up and does not count. */
#ifndef HS_TRAIN_JUDGE_H
#define HS_TRAIN_JUDGE_H

#include "train/flows.h"
#include "train/job_plan.h"

struct err;
struct buf;

struct judge_stage {
	double busy, wait; /* seconds of a step, means */
	uint64_t memory;   /* bytes at the peak */
};

struct judge {
	const struct job_plan *job_plan; /* borrowed */
	double *seconds;                 /* predicted and measured in turn */
	size_t steps, cap;
	bool warm;                  /* the first step is over */
	struct judge_stage *stage;  /* [stages] */
	double predicted, measured; /* seconds of a step, medians; set by judge_end() */
};

/* Zero-initialised otherwise. */
int judge_init(struct judge *j, const struct job_plan *p, struct err *e);
void judge_release(struct judge *j);
/* What is predicted of a step with that many tokens, seconds. */
double judge_predict(const struct judge *j, uint64_t tokens);
/* One step; `stage` as the workers said. */
int judge_step(struct judge *j, uint64_t tokens, double seconds, const struct train_stage *stage,
	       struct err *e);
/* False when there was nothing to compare. */
bool judge_end(struct judge *j);

/* In sentences, one a line: step time, each stage's memory; when the step time is off by more than
 * 10 %, what differed most. */
void judge_text(const struct judge *j, struct buf *out);
/* DIR/prediction.json: {"predicted_seconds", "measured_seconds", "error_percent", "stages":
 * [{"id", "predicted_gib", "measured_gib", "predicted_busy_seconds",
 * "measured_busy_seconds", "measured_wait_seconds"}]}. */
int judge_write(const struct judge *j, const char *dir, struct err *e);

#endif
