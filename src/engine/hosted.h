/* SPDX-License-Identifier: Apache-2.0 */
/* hosted.h - what travels between a device and the memory of its host for an offloaded optimizer
 * (param.h: hosted), beside computing: gradients, which go to the host while the next part of the
 * backward pass is computed, and new values of parameters that are `lazy`, which come back layer by
 * layer during the next forward pass (the one-step delay of ZeRO-Offload, arXiv 2101.06840, section
 * 5.2, is not taken: every pass computes with the new values). */
#ifndef HS_ENGINE_HOSTED_H
#define HS_ENGINE_HOSTED_H

#include "engine/worker_model.h"
#include "engine/worker_times.h"

struct err;

/* Numbers of a gradient on their way to the host. */
struct hosted_grad {
	void *to;
	struct dev_ref from;
	size_t bytes;
};

struct hosted {
	struct dev *dev;
	struct worker_times *times; /* borrowed */
	struct hosted_grad *grad;   /* [n], of which `sent` are on the host */
	size_t n, sent, cap;
	bool begun;          /* the first one is under way */
	struct param **lazy; /* [lazies] in the order of the layers */
	size_t lazies, brought;
	/* bytes to and from the host, and those of them that went beside computing */
	uint64_t moved, beside;
};

/* When the model has been built, all whose values come to the device by hosted_need(). */
int hosted_begin(struct hosted *h, struct dev *dev, const struct worker_model *m,
		 struct worker_times *t, struct err *e);
void hosted_end(struct hosted *h);
/* A round begins: nothing is on its way, and the values on the device may be old. */
void hosted_round(struct hosted *h);

/* Will be sent; `from` keeps its numbers until then. */
int hosted_add(struct hosted *h, void *to, struct dev_ref from, size_t bytes, struct err *e);
/* Before the device gets what it computes meanwhile: so the first transfer, and those that follow
 * it, wait for the gradients alone. */
int hosted_start(struct hosted *h, struct err *e);
/* All that was added is on the host. */
int hosted_send(struct hosted *h, struct err *e);

/* Before the layer of the model is computed (-1: the front, INT_MAX: the end): its values and those
 * of the layers before it are on the device. */
int hosted_need(struct hosted *h, int layer, struct err *e);
/* Brings the next values, as long as the device computes. */
int hosted_advance(struct hosted *h, struct err *e);

#endif
