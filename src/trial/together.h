/* SPDX-License-Identifier: Apache-2.0 */
/* together.h - what the devices of a job reach together, measured beside what each reaches alone:
 * short runs of one job, one after the other, with the same rows, steps and microbatches.
 *
 * First the whole as configured or planned (its profile is measured and then used by all), then
 * each device that can hold the job, then the whole once more; all workers join every run. Nothing
 * is left behind: the runs' folders are removed. A rate is the median over all steps but the
 * first. */
#ifndef HS_TRIAL_TOGETHER_H
#define HS_TRIAL_TOGETHER_H

#include "plan/alone.h"
#include "train/train.h"

struct err;

struct together_device {
	const char *id, *kind;
	bool fits;
	double tokens_per_s, step_s; /* alone; NaN where it does not fit */
	char why[240];               /* it does not fit */
	/* in the whole: row of the placement, layers, share of the rows; row -1: it has no part */
	int row, stage, first, last;
	double rows;
	double busy, copy, wait; /* measured, shares of the step */
};

struct together {
	struct arena mem; /* owns the texts */
	struct together_device *device;
	int devices;
	int64_t rows, steps;          /* rows of a step; steps of every run */
	int used;                     /* devices that have a part in the whole */
	double first_run, second_run; /* tokens/s of the whole, before and after the single ones */
	double tokens_per_s, step_s;  /* the mean of the two */
	double predicted_s;           /* of a step, by the plan */
	struct plan_sum sum;          /* of the measured rates */
	struct plan_lost lost;
};

struct together_options {
	int64_t steps; /* of each run, at least 3 */
	const volatile sig_atomic_t *stop;
	char *const *program;      /* as of train_options */
	const struct ranks *ranks; /* likewise */
	/* a run begins: "together", or the id of the device. MAY be NULL */
	void (*begins)(void *ctx, const char *what);
	void *ctx;
};

int together_run(const struct config *c, const struct together_options *o, struct together *out,
		 struct err *e);
void together_release(struct together *t);

#endif
