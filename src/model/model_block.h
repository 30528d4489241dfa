/* SPDX-License-Identifier: Apache-2.0 */
/* model_block.h - a model as a stage runs it: a list of blocks, one after the other. The front
 * comes first, then the layers, then the end with the loss. A block has parameters by name and
 * shape, and a forward pass made of ops; its backward pass is the tape's (tensor/tape.h). So any
 * list can be cut into stages between two layers.
 *
 * Between two blocks there is one activation (N,W): N rows of the microbatch (of text: tokens), W
 * numbers each, in the stage's activation dtype. */
#ifndef HS_MODEL_MODEL_BLOCK_H
#define HS_MODEL_MODEL_BLOCK_H

#include "model/stage_param.h"

struct err;
struct expert_rows;

struct model_block {
	/* Adds its parameters, in an order that depends on the model alone. `index`: of the layer;
	 * -1 the front, INT_MAX the end. */
	int (*build)(struct stage_builder *b, int64_t index, struct err *e);
	/* y = what it makes of x. Of the front, x is NULL; the end gives its losses (n) f32 or,
	 * where there is nothing to train, NULL, and adds them to slot->loss. */
	int (*forward)(struct slot *sl, struct tape *t, int64_t index, struct tensor *x,
		       struct tensor **y_p, struct err *e);
};

struct model_blocks {
	struct model_block front, layer, end;
	/* MAY: a layer in two halves, before its experts and behind them (experts.h); and y (M,C),
	 * the rows through the experts that are here: `sl` has the stage and the data of the
	 * microbatch, `places` is of the rows' tokens */
	int (*route)(struct slot *sl, struct tape *t, int64_t index, struct tensor *x,
		     struct expert_rows *w, struct err *e);
	int (*experts)(struct slot *sl, struct tape *t, int64_t index, struct tensor *rows,
		       const struct routing *r, struct tensor **y_p, struct err *e);
	int (*combine)(struct slot *sl, struct tape *t, int64_t index, const struct expert_rows *w,
		       struct tensor *rows, struct tensor **y_p, struct err *e);
	bool alike; /* all layers keep equally much for their backward pass */
	/* Most parameters of front and end together, and of a layer. */
	size_t (*params)(const struct model_config *c, bool layer);
	/* Uploads what the blocks of the slot's stage need of its microbatch. */
	int (*begin)(struct slot *sl, struct err *e);
};

/* Bytes of an activation of n rows between layers index-1 and index. */
size_t stage_bytes(const struct stage *s, int64_t n, int64_t index);

/* Those of a model. */
const struct model_blocks *model_blocks_of(const struct model_config *c);

#endif
