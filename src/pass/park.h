/* SPDX-License-Identifier: Apache-2.0 */
/* park.h - activations in the memory of the host (OFFLOAD_ACTIVATIONS): the input of each chunk and
 * microbatch, from its producer to the chunk's backward pass, which repeats the forward pass from
 * it; and the gradient of its output, from the chunk behind it. No slot is kept between a chunk's
 * passes, but for the end of the model.
 *
 * One download is under way at a time; where the device moves data beside its kernels the next
 * pass computes meanwhile, so the slot it comes from stays open until park_settle(). Memory is
 * kept for the next step. */
#ifndef HS_PASS_PARK_H
#define HS_PASS_PARK_H

#include "pass/slots.h"

struct err;

enum park_what { PARK_IN, PARK_GRAD };

struct parked {
	int chunk, mb; /* mb -1: free */
	enum park_what what;
	unsigned char *bytes; /* (cap) */
	size_t n, cap;
};

struct park {
	bool on;
	struct dev *dev;
	struct slots *slots;
	struct parked *item; /* [n] */
	size_t n, cap;
	/* of the download under way: what it fills in, and the slot that is freed behind it; -1:
	 * there is none */
	int64_t coming, slot;
	/* bytes to and from the host, and those of them that went beside computing */
	uint64_t moved, beside;
};

void park_begin(struct park *p, bool on, struct dev *dev, struct slots *slots);
/* Begins to keep n bytes for (chunk, mb); `from` belongs to `sl`, which is freed. */
int park_put(struct park *p, enum park_what what, int chunk, int mb, struct slot *sl,
	     struct dev_ref from, size_t n, struct err *e);
/* Whether they are here; what is still under way is not. */
bool park_has(struct park *p, enum park_what what, int chunk, int mb);
int park_settle(struct park *p, struct err *e); /* the download is complete */
/* 1: the bytes are on their way to `to`; 0: there are none. `last`: they are not needed again. */
int park_take(struct park *p, enum park_what what, int chunk, int mb, struct dev_ref to, bool last,
	      struct err *e);
uint64_t park_bytes(const struct park *p); /* the most that were here at once */
void park_reset(struct park *p);           /* behind a round that failed, too */
void park_release(struct park *p);

#endif
