/* SPDX-License-Identifier: Apache-2.0 */
/* round.h - the coordinator's side of one round: sending its microbatches, and collecting the
 * workers' reports in any order of arrival.
 *
 * Training: round_begin, round_send for each, round_losses, round_norms, round_step, round_end.
 * Evaluation: round_begin, round_losses, round_end; the same of ROUND_REFER (refer.h). Sampling:
 * round_begin, round_token, round_end.
 * A message of another round, or a second one of the same kind, is an error of the job. */
#ifndef HS_TRAIN_ROUND_H
#define HS_TRAIN_ROUND_H

#include "base/arena.h"
#include "base/buf.h"
#include "train/prior.h"
#include "coord/session.h"
#include "survey/flows.h"

struct err;

enum { NORMS_MOST = MODEL_LAYERS_MOST + 2 };

struct round_options {
	bool in_memory; /* the workers are threads of this process */
	bool trace;     /* they send spans */
	/* Spans of a worker, on this process's clock; MAY be NULL. `row`: its place in
	 * the pipeline. */
	void (*spans)(void *ctx, int row, const struct span *v, size_t n, int64_t error);
	void *ctx;
	struct draw draw;          /* of the tokens of sample rounds */
	const struct prior *prior; /* MAY: the references that are known */
};

struct rounds {
	struct session *ses;
	struct round_options o;
	int64_t layers;
	uint64_t number; /* counts rounds: the step number of the frames */
	/* The members that hold a stage, by stage and then by place in its group ("rows"). */
	int n;
	int *member; /* [n] of a row */
	int *row;    /* [members] of a member; -1 */
	int *next;   /* [n] the row that gets its activations; -1 */
	/* Of the current round. */
	enum round kind;
	uint64_t step;
	float scale;
	uint32_t microbatches, losses; /* losses: how many have arrived */
	struct loss_message *loss;     /* [microbatches] */
	bool *have_loss;
	size_t loss_cap, have_cap;
	struct references ref;
	uint64_t trained, hits;    /* trained tokens; of them the likeliest. Of preferences: rows */
	struct prefer_score score; /* of preferences */
	int norms, done;           /* how many NORM, STEPPED have arrived */
	bool *have_norm, *have_done, have_token; /* [n] */
	double norm[NORMS_MOST]; /* squared, by layer: 0 front, i+1 layer i, last the end */
	int32_t token;
	/* [n] of the last round */
	struct stepped_message *stepped;
	int64_t *clock;
	struct flow_rate *rates;
	struct train_stage *stages;
	int64_t busy, wait; /* nanoseconds, summed over the workers */
	uint64_t mem_peak;
	struct span *span;
	struct buf out; /* STEP */
};

/* After session_assign(); lists live in `a`. */
int rounds_init(struct rounds *p, struct session *s, const struct round_options *o, struct arena *a,
		struct err *e);
void rounds_release(struct rounds *p);

/* A round of n microbatches for training step `step` (0 outside of training); then each of them is
 * sent, in order. */
void round_begin(struct rounds *p, enum round kind, uint32_t n, uint64_t step, float scale);
int round_send(struct rounds *p, uint32_t m, const struct microbatch *mb, struct err *e);
/* The losses, summed in the order of the microbatches, whatever the schedule was. */
int round_losses(struct rounds *p, double *sum_p, uint64_t *trained_p, struct err *e);
/* The squared norm of the whole gradient, summed layer by layer, so that its bits do not depend on
 * the split. */
int round_norms(struct rounds *p, double *sqnorm_p, struct err *e);
int round_step(struct rounds *p, const struct step_message *m, struct err *e);
int round_token(struct rounds *p, int32_t *token_p, struct err *e);
/* Until every worker has reported; fills in the figures of the round. */
int round_end(struct rounds *p, struct err *e);

#endif
