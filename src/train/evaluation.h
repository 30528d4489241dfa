/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.h - the loss on the validation split, and what follows from it: when training stops
 * early, and which model is the best. */
#ifndef HS_TRAIN_EVALUATION_H
#define HS_TRAIN_EVALUATION_H

#include "train/round.h"
#include "train/save.h"
#include "train/train.h"

struct evaluation {
	struct batches *batches;
	struct rounds *rounds;
	const struct train_sink *sink;
	const struct dataset_source *source; /* [sources] */
	size_t sources;
};

/* The mean loss over all trained tokens of the validation split, after `step`; reported to the
 * sink. */
int evaluation_run(const struct evaluation *v, uint64_t step, double *loss_p, struct err *e);

/* Rounds of an evaluation, and what comes before the i-th of them: its reference (refer.h). */
size_t evaluation_rounds(const struct batches *b);
int evaluation_refer(struct batches *b, struct rounds *p, size_t i, struct err *e);

/* What is reported of preferences. */
struct train_rewards evaluation_rewards(const struct prefer_score *s, double accuracy);
/* Takes note of an evaluation in training. True: its loss is the lowest so far. */
bool evaluation_note(struct train_state *st, double loss);
/* As transformers' EarlyStoppingCallback with a threshold of 0; with `patience` 0 never. */
bool evaluation_stops(const struct train_state *st, int64_t patience);
/* The job, the workers and the result get the model of the best evaluation. */
int evaluation_take_best(struct saver *s, struct rounds *p, const struct train_state *st,
			 double *loss_p, struct err *e);

#endif
