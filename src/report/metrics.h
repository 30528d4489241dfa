/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - the numbers of a run: metrics.jsonl (one line a step) and TensorBoard event files.
 *
 * metrics.jsonl is appended to with one write a line, so that a killed run leaves whole lines;
 * resuming removes the lines after the checkpoint. NaN and infinities become null (JSON has none).
 * Not thread-safe. */
#ifndef HS_REPORT_METRICS_H
#define HS_REPORT_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct metrics;

/* Of preferences, under TRL's names: rewards/chosen, rewards/rejected, rewards/margins,
 * rewards/accuracies. */
struct metrics_rewards {
	double chosen, rejected, margin, accuracy;
};

/* A number that does not apply is NaN, and is then not in the line (the loss of a skipped step
 * is null). */
struct metrics_step {
	int64_t step; /* from 1 */
	double epoch;
	double loss, learning_rate, grad_norm;
	double token_accuracy; /* share of the trained tokens that were the likeliest */
	int64_t tokens;        /* all ids that went through the model in this step */
	double tokens_per_second, seconds;
	double predicted_seconds;              /* by the plan; NaN: there was no prediction */
	double memory_peak;                    /* bytes on the device; NaN: not known */
	double expert_hits;                    /* share of needed experts that were on the device */
	double loss_scale;                     /* of float16; 0: none */
	bool skipped;                          /* no update: loss or norm was not finite */
	const struct metrics_rewards *rewards; /* NULL: no preferences */
};

/* The curve so far, for the picture: (nstep) and (nval) points in order of the steps. */
struct metrics_curve {
	const double *step, *loss, *learning_rate;
	size_t nstep;
	const double *val_step, *val_loss;
	size_t nval;
};

/* `dir`/metrics.jsonl. `resume_step` < 0: a new file; else lines of later steps are cut off and
 * earlier ones are read back into the curve. */
int metrics_open(const char *dir, int64_t resume_step, struct metrics **m_p, struct err *e);
void metrics_close(struct metrics *m); /* NULL is allowed */
/* A full disk is no error: it is said once, and the lines are written when there is room. */
int metrics_add(struct metrics *m, const struct metrics_step *s, struct err *e);
/* Of one dataset. */
struct metrics_part {
	const char *name;
	double loss;
};
struct metrics_val {
	double loss, token_accuracy;
	const struct metrics_rewards *rewards; /* NULL: no preferences */
	const struct metrics_part *part;       /* [parts] */
	size_t parts;
};
/* A line {"step", "val_loss", "val_perplexity", "val_token_accuracy"}; step 0: before training. Of
 * preferences the rewards are in the place of the last two. Behind them, where there are parts,
 * "val_datasets": {NAME: {"loss", "perplexity"}}. */
int metrics_eval(struct metrics *m, int64_t step, const struct metrics_val *v, struct err *e);
/* A line {"step", "event", "text"}: something that happened after this step. */
int metrics_event(struct metrics *m, int64_t step, const char *event, const char *text,
		  struct err *e);
/* Steps after `step` are computed again: they go from the curve, and their lines with the next line
 * of a step or evaluation, or at the end. Not before: the coordinator may be killed while workers
 * still have the later state, and the run then goes on from that. */
void metrics_go_back(struct metrics *m, int64_t step);
/* valid until the next metrics_ call */
struct metrics_curve metrics_curve(const struct metrics *m);

#endif
