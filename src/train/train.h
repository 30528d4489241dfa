/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - the coordinator: a whole training run from a configuration.
 *
 * It decides everything (order of the data, learning rate, whether a step is applied, when to save)
 * and computes nothing. Events are passed to a sink; nothing is printed here. */
#ifndef HS_TRAIN_TRAIN_H
#define HS_TRAIN_TRAIN_H

#include "job/checkpoint.h"
#include "survey/flows.h"
#include "proto/hello.h"
#include "job/job.h"
#include "survey/judge.h"
#include "survey/job_plan.h"
#include "coord/seat.h"

#include <signal.h>

struct err;

struct train_info {
	const struct job *job;
	const struct placement *place;
	uint64_t first_step;      /* 0, or the step that is resumed from */
	const char *resumed_from; /* NULL: a new run */
	/* [stages]: of a cluster; NULL when the job runs in this process */
	const struct seat_spec *seat;
	const struct welcome *caps; /* [stages] */
	/* the plan and what it predicts; NULL: the caller of train_run placed the layers */
	const struct job_plan *job_plan;
};

/* Of preferences, as TRL reports them: means of the rewards of chosen and rejected answers (NaN
 * where there was none), and the share of rows whose rewards are in the right order; of single
 * answers, whose reward has the right sign. */
struct train_rewards {
	bool given;
	double chosen, rejected, margin, accuracy;
};

struct train_step {
	uint64_t step, total; /* from 1 */
	double epoch;         /* epochs of data, with fraction */
	double loss, learning_rate, grad_norm;
	uint64_t tokens, trained;     /* ids through the model, trained ids */
	double accuracy;              /* share of the trained ids that were the likeliest */
	struct train_rewards rewards; /* of preferences; then `trained` counts rows */
	double seconds;
	double predicted;                /* seconds, by the plan; NaN: there is none */
	double eta;                      /* seconds */
	uint64_t mem_peak;               /* bytes, largest of the devices */
	double busy;                     /* share of the step the devices computed, mean */
	double loss_scale;               /* that this step was computed with; 0: none */
	bool skipped;                    /* no update: loss or gradient was not finite */
	const struct train_stage *stage; /* [stages] */
	int stages;
};

/* Of one dataset. */
struct train_part {
	const char *name;
	double loss;
	uint64_t tokens;
};

struct train_eval {
	uint64_t step; /* after which; 0: before training */
	double loss, accuracy;
	struct train_rewards rewards;
	uint64_t tokens;               /* that count */
	const struct train_part *part; /* [parts] by dataset, where there are several */
	size_t parts;
};

/* The members of a running job have changed, and it goes on with another plan. */
struct train_change {
	const char *event; /* "lost", "joined", "left", "moved" */
	const char *text;  /* one line for the user: who, which layers, from which step on */
	uint64_t step;     /* it goes on after this step: later ones are computed again */
	uint64_t reached;  /* the last step that was done before */
	double seconds;    /* that it took, from the moment it was noticed */
	const struct train_info *info;
};

struct train_result {
	uint64_t step, total;
	/* no evaluation was better than that of step `best` for early_stopping_patience; `best` is
	 * 0 where nothing was evaluated in training */
	bool stopped_early;
	uint64_t best;
	bool timed_out;   /* ended early by max_minutes; saved */
	bool interrupted; /* ended early by `stop` or by the wish of a worker; saved */
	char dir[2048];   /* of the result: output_dir, or what was chosen when that could not be */
	double first_loss, last_loss;
	double val_before, val_after; /* NaN without validation data */
	uint64_t tokens, skipped;
	double seconds;
	uint64_t mem_peak;
};

/* All slots MAY be NULL. */
struct train_sink {
	void *ctx;
	/* output_dir exists; nothing has been trained */
	int (*begin)(void *ctx, const struct train_info *i, struct err *e);
	/* the first step begins: from now on `stop` finishes one, and saves */
	void (*trains)(void *ctx);
	int (*step)(void *ctx, const struct train_step *s, struct err *e);
	int (*eval)(void *ctx, const struct train_eval *v, struct err *e);
	/* progress within a long activity */
	void (*part)(void *ctx, const char *what, uint64_t done, uint64_t all);
	/* The learning rate of a step, which the curve would have: the one that is used. */
	double (*rate)(void *ctx, uint64_t step, double rate);
	/* a sample prompt's answer */
	int (*sample)(void *ctx, uint64_t step, const char *prompt, const char *text,
		      struct err *e);
	int (*saved)(void *ctx, uint64_t step, const char *path, struct err *e);
	/* What was told of steps behind c->step counts no more. */
	int (*change)(void *ctx, const struct train_change *c, struct err *e);
	/* Whether the user wants a worker to leave, asked between two steps: its id. */
	bool (*leave)(void *ctx, char *id, size_t cap);
	/* The run cannot be saved at its end: 0 tries again (later, or in the folder other[cap]
	 * when that is set), negative gives up. */
	int (*blocked)(void *ctx, const char *why, char *other, size_t cap);
	/* The run failed after it began; `newest`: the checkpoint from which to continue,
	 * NULL: none. */
	void (*lost)(void *ctx, const char *newest);
	/* At the end: the prediction and the measurement. Not called when nothing was predicted or
	 * there was only one step. */
	void (*judge)(void *ctx, const struct judge *j);
	/* What a worker did in a round, on our clock; `error`: its largest error in nanoseconds. */
	void (*spans)(void *ctx, int worker, uint64_t step, const struct span *v, size_t n,
		      int64_t error);
};

struct train_options {
	/* set by a signal handler: finish the step, save, end. NULL: never */
	const volatile sig_atomic_t *stop;
	const struct placement *place; /* NULL: one stage on the configured device */
	enum dtype act;                /* with `place`: dtype of activations */
	/* with `place`: [stages] the member that gets each stage; NULL: member i stage i */
	const int *member;
	uint64_t window;    /* with `place`: bytes in flight to a member (net.h); 0: the default */
	bool trace;         /* spans to the sink */
	bool allow_changes; /* resume although permitted settings have changed */
	/* argv that starts a worker process, ended by NULL; "--worker ID" is added. For clusters */
	char *const *program;
	const struct ranks *ranks; /* NULL: not started by mpirun or srun (ranks.h) */
	const struct sample_set
		*samples; /* of a model of one's own; else NULL (data/sample_set.h) */
};

int train_run(const struct config *c, const struct train_options *o, const struct train_sink *sink,
	      struct train_result *r_p, struct err *e);

#endif
