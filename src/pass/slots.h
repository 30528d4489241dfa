/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h - the microbatches that a worker has in flight: a slot of its stage for each (chunk,
 * microbatch), used again when it is free.
 *
 * There are as many slots as microbatches in flight at once, for all chunks together: a warm step
 * allocates none. */
#ifndef HS_PASS_SLOTS_H
#define HS_PASS_SLOTS_H

#include "model/stage.h"

struct err;

struct slots {
	struct slot *slot; /* [n] */
	int *chunk, *mb;   /* [n] whose; mb -1: free */
	size_t n, slot_cap, chunk_cap, mb_cap;
};

/* The slot of (chunk, microbatch). 1: it is new and the caller must call stage_begin(); 0: it
 * exists already. Pointers to other slots are invalid afterwards. */
int slots_open(struct slots *p, struct stage *stage, int chunk, int mb, struct slot **sl_p,
	       struct err *e);
void slots_free(struct slots *p, struct slot *sl);
void slots_release(struct slots *p);

#endif
