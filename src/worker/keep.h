/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h - when the state of a worker's model is that of a step, and what becomes of it when the
 * plan ends (kept.h). */
#ifndef HS_WORKER_KEEP_H
#define HS_WORKER_KEEP_H

#include "worker/worker_priv.h"

struct err;

/* What the model has now is the state of this record. What was kept of another plan is not needed
 * any more. */
int worker_note_record(struct worker *w, const void *p, size_t n, struct err *e);
/* RECORD. */
int worker_take_record(struct worker *w, const struct frame *f, struct err *e);
/* STATE: the model has that of no step until RECORD. */
int worker_load_state(struct worker *w, const struct frame *f, struct err *e);
/* SAVE: its part of the state. */
int worker_save_state(struct worker *w, const struct frame *f, struct err *e);
/* SAVE before PLAN: to a coordinator that was started anew. */
int worker_send_kept(struct worker *w, const struct frame *f, struct err *e);
/* The plan ends: the state outlives it. `gone`: so is the coordinator. */
void worker_keep_state(struct worker *w, bool gone);

#endif
