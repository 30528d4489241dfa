/* SPDX-License-Identifier: Apache-2.0 */
/* memory_advice.h - advice when a device's memory is too small for training: which setting to
 * lower, and by how much.
 *
 * The need of a pass is estimated from the shapes (what stage.h keeps of each layer, what backward
 * needs beside it, the block of logits); it is meant for advice, not for planning, and may be up to
 * a third too high. */
#ifndef HS_RUNTIME_MEMORY_ADVICE_H
#define HS_RUNTIME_MEMORY_ADVICE_H

#include "model/stage.h"

struct memory_ask {
	const struct model_config *cfg;
	const struct stage_options *opt; /* of any chunk of the worker */
	int64_t layers;                  /* of all its chunks */
	bool end;                        /* it has the head */
	/* of the largest microbatch; 0: parameters did not fit already */
	int64_t tokens;
	int in_flight; /* microbatches whose activations are kept at once */
	int units;     /* of the device: dev.units */
	/* bytes of parameters, gradients and optimizer states; not known when tokens is 0 */
	uint64_t parameters;
	/* bytes that this program may use: what it holds and what is free */
	uint64_t there;
};

/* Bytes of a pass beside the parameters, with microbatches of `tokens`, with or without
 * gradient checkpointing. */
uint64_t memory_of_pass(const struct memory_ask *a, int64_t tokens, bool recompute);
/* Appends the advice to the message of `e`. */
void memory_advice(const struct memory_ask *a, struct err *e);

#endif
