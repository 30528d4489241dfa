/* SPDX-License-Identifier: Apache-2.0 */
/* recover.h - a run goes on after a worker was lost: everybody who is left forgets the step, a new
 * plan is made for them, layers travel where they are missing, and training state, data cursor and
 * counters go back to the newest snapshot. The steps since then are computed again, so the result
 * is that of a run in which nobody was lost. A worker that comes back gets a part of the work in
 * the same way, between two steps, so that no step is computed again. */
#ifndef HS_TRAIN_RECOVER_H
#define HS_TRAIN_RECOVER_H

#include "train/trainer.h"

struct err;

/* After a failure, with its error: 0 when the run can go on, from t->st. Otherwise the error of the
 * run; what is there has been saved where that was possible. */
int recover(struct trainer *t, struct err *e);
/* Between two steps: workers that want to leave do so, where the others can go on; those that are
 * gone are looked for. Where one is back and would help, the job goes on with it. The state of all
 * is collected before, so that no step is computed again. */
int recover_members(struct trainer *t, struct err *e);
/* After a step of `seconds`: sets the time limit after which a worker counts as stuck. */
void recover_after_step(struct trainer *t, double seconds);

#endif
