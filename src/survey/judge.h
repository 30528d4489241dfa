/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - the error of a prediction: the plan's time of each step against the measured one.
 *
 * The prediction for a step is the plan's time for the mean step, scaled by the tokens of this
 * step. The first step of a run warms up and is not used. */
#ifndef HS_SURVEY_JUDGE_H
#define HS_SURVEY_JUDGE_H

#include "survey/flows.h"
#include "survey/job_plan.h"

struct err;
struct buf;

struct judge_member {
	int stage;
	const struct plan_member *planned;
	double busy, wait; /* seconds of a step, means */
	uint64_t memory;   /* bytes at the peak */
	uint64_t host;     /* of what is offloaded, in the memory of its host */
};

struct judge {
	const struct job_plan *job_plan; /* borrowed */
	double *seconds;                 /* predicted and measured in turn */
	size_t steps, cap;
	bool warm;                   /* the first step is over */
	struct judge_member *member; /* [members] stage by stage, and in a group by place */
	int members;
	double predicted, measured; /* seconds of a step, medians; set by judge_end() */
};

/* Zero-initialised otherwise. */
int judge_init(struct judge *j, const struct job_plan *p, struct err *e);
void judge_release(struct judge *j);
/* The predicted seconds of a step with that many tokens. */
double judge_predict(const struct judge *j, uint64_t tokens);
/* Adds one step; row[members] from the workers' reports. */
int judge_step(struct judge *j, uint64_t tokens, double seconds, const struct train_stage *row,
	       struct err *e);
/* False when there was nothing to compare. */
bool judge_end(struct judge *j);

/* In sentences, one a line: step time, each member's memory; when the error of the step time is
 * above 10 %, the member that differed most. */
void judge_text(const struct judge *j, struct buf *out);
/* DIR/prediction.json: {"predicted_seconds", "measured_seconds", "error_percent", "stages":
 * [{"id", "stage", "predicted_gib", "measured_gib", "predicted_busy_seconds",
 * "measured_busy_seconds", "measured_wait_seconds"}]}. */
int judge_write(const struct judge *j, const char *dir, struct err *e);

#endif
