/* SPDX-License-Identifier: Apache-2.0 */
/* stage_run.h - the steps of a pass through a stage, for stage.c and halves.c. */
#ifndef HS_MODEL_STAGE_RUN_H
#define HS_MODEL_STAGE_RUN_H

#include "model/model_block.h"

/* A tape of the slot whose outputs go to `mem`. */
struct tape run_tape(struct slot *sl, bool record, struct dmem *mem);
/* y = layer i of the stage on h. */
int run_layer(struct slot *sl, struct tape *t, int64_t i, struct tensor *h, struct tensor **y_p,
	      struct err *e);
/* Before the first layer: leaves its input, (N,W), at h[0]. */
int run_front(struct slot *sl, struct err *e);
/* Behind the last layer: where its output is, and at the end of the model the losses. */
int run_end(struct slot *sl, struct err *e);
/* Runs a recorded tape backwards and leaves the gradient of x (N,C; MAY be NULL) at slot->grad. */
int run_back(struct slot *sl, struct tape_node *last, struct tensor *x, struct err *e);
/* Backward: of the end, of layer i (from the gradient of its output at slot->grad to that of its
 * input), of the front. */
int run_end_back(struct slot *sl, struct err *e);
int run_layer_back(struct slot *sl, int64_t i, struct err *e);
int run_front_back(struct slot *sl, struct err *e);
/* Calls stage->between and stage->before. */
int run_queued(const struct stage *s, bool last, struct err *e);
int run_needed(const struct stage *s, int layer, struct err *e);

#endif
