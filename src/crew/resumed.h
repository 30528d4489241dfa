/* SPDX-License-Identifier: Apache-2.0 */
/* resumed.h - a state with which a run goes on, where batches, data or length of the job are not
 * those with which it was saved (--allow-changes). */
#ifndef HS_CREW_RESUMED_H
#define HS_CREW_RESUMED_H

#include "job/checkpoint.h"

/* Reads a checkpoint as checkpoint_read() does, and makes it one of this job: the place in the data
 * is that of the same row (no row of the epoch is left out, up to a step's rows may come twice), or
 * the next epoch where there are fewer rows; a lowest loss of other data does not count. Then
 * resumed_state(). What changes is said. */
int resumed_read(struct job *j, const char *path, bool allow_changes, struct train_state *s_p,
		 struct err *e);
/* The length of the run follows from what is done and left (resumed_steps()). With
 * load_best_model_at_end a best model whose checkpoint is not in output_dir is forgotten, unless it
 * is this state and `unsaved`: the run began in another folder, or kept no best one. */
void resumed_state(struct job *j, bool unsaved, struct train_state *s);
/* All steps of the run: those that are done and what is left of the data, or max_steps. */
uint64_t resumed_steps(const struct job *j, const struct train_state *s);

#endif
