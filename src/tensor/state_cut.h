/* SPDX-License-Identifier: Apache-2.0 */
/* state_cut.h - which elements of a parameter a member of a group stores the training state of, and
 * updates: an uneven cut that has nothing to do with what the member computes.
 *
 * A parameter is cut behind blocks of STATE_BLOCK elements, counted from its start: member k of n
 * has the blocks [b(k), b(k+1)), b(k) = round(blocks times the sum of the shares before k). The
 * gradient norm is a sum of such blocks too, so it has the same bits for every cut. Where
 * parameters must stay whole, each goes to the member that has the least for its share so far.
 *
 * Pure: all members compute the same cuts. */
#ifndef HS_TENSOR_STATE_CUT_H
#define HS_TENSOR_STATE_CUT_H

#include <stdbool.h>
#include <stdint.h>

enum { STATE_BLOCK = 4096, STATE_WHOLE = 1000000, STATE_MEMBERS = 256 };

/* What of it a group shares; also the numbers in PLAN. */
enum sharding {
	SHARD_NONE,       /* every member has the whole of its stage */
	SHARD_OPTIMIZER,  /* master copies and optimizer states; values and gradients are whole */
	SHARD_PARAMETERS, /* and the matrices themselves, which are gathered chunk by chunk */
};

/* What a worker has in the memory of the host instead of its device's; bits, also in PLAN. A worker
 * whose device is the host's processor has nothing to offload. */
enum offload {
	OFFLOAD_ACTIVATIONS =
		1, /* the input of each chunk, from which its forward pass is repeated */
	OFFLOAD_OPTIMIZER = 2,  /* master copies and optimizer states; updates run there */
	OFFLOAD_PARAMETERS = 4, /* the matrices, which are gathered chunk by chunk */
	OFFLOAD_EXPERTS = 8,    /* frozen matrices of experts (expert_cache.h) */
	OFFLOAD_ALL = 15
};

struct state_cut {
	int n, place;     /* members, and the one that asks */
	const int *share; /* [n] millionths; their sum is STATE_WHOLE */
	bool whole;       /* parameters are not cut */
	bool values;      /* SHARD_PARAMETERS */
};

/* Elements that each member has so far; zeros at first. So cuts of small parameters, which have few
 * blocks, are rounded to either side, and everybody has its share in sum. */
struct state_dealt {
	int64_t at[STATE_MEMBERS];
};

/* cut_p (n+1): member k has the elements [cut_p[k], cut_p[k+1]) of the next parameter. */
void state_cut_find(const struct state_cut *c, struct state_dealt *d, int64_t count,
		    int64_t *cut_p);

#endif
