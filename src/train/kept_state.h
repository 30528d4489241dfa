/* SPDX-License-Identifier: Apache-2.0 */
/* kept_state.h - a coordinator that was killed and is started anew goes on from the state that the
 * workers have kept, without a checkpoint; and the record that they need for that.
 *
 * With every STEP goes the record of the state that it makes (proto/record.h). So a worker that
 * applied the step has its part of a set that is whole when all have applied it, and one that has
 * not is a step behind. Then no step is whole, and the newest checkpoint is taken. */
#ifndef HS_TRAIN_KEPT_STATE_H
#define HS_TRAIN_KEPT_STATE_H

#include "train/trainer.h"

struct err;

/* Before a worker hears of the run: whether it is the one in the folder, or that of the checkpoint
 * `resume` (MAY be NULL). */
int kept_state_fits(struct trainer *t, const char *resume, struct err *e);
/* Where the run begins: from what the workers have kept, else from the checkpoint `resume` (MAY be
 * NULL). For join_options.met: the workers have joined, the dtype of the job is not decided. */
int kept_state_begin(struct trainer *t, struct session *ses, const char *resume, struct err *e);
/* From that checkpoint, or (NULL) the beginning. */
int kept_state_else(struct trainer *t, const char *resume, struct err *e);
/* The run failed. What the workers had kept, or a later state, becomes a checkpoint where there is
 * none of it: they end with the job. */
void kept_state_save(struct trainer *t);
/* The record of a state into t->record. `owed`: the line of its step, which is not written yet, nor
 * is what follows done; NULL: it is. Empty where nobody keeps a state. */
int kept_state_record(struct trainer *t, const struct train_state *st,
		      const struct record_line *owed, struct err *e);
struct record_line kept_state_line_of(const struct train_step *s);
/* The workers have got the state t->st, or what followed its step is done. */
int kept_state_sent(struct trainer *t, struct err *e);
/* Whether the run has begun with such a state, and the checkpoint that was due after its step is
 * not on disk: the coordinator ended before it was. */
bool kept_state_unsaved(const struct trainer *t);
/* The line of the step after which the run goes on, when it was not written. */
int kept_state_line(struct trainer *t, struct err *e);

#endif
