/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache.h - the frozen matrices of experts in the memory of the host (offload: [experts]),
 * and slots on the device for some of them. What op_grouped needs next is brought into a slot, so
 * that only experts travel that tokens chose; products and their order are the same as without.
 *
 * A slot holds one matrix, as it is stored (4 bits with block scales, or 16 or 32). All matrices of
 * experts of a model have equally many numbers, so any slot serves any of them. A slot is given up
 * by use: the matrix that was needed least often goes first, among equals the one that was needed
 * longest ago; counts are halved from time to time, so that old use is forgotten.
 *
 * Who computes product after product marks what it will need, and brings the next while the last
 * product runs: then nothing that is marked is given up, nor what the last product reads. */
#ifndef HS_TENSOR_EXPERT_CACHE_H
#define HS_TENSOR_EXPERT_CACHE_H

#include "tensor/param.h"

struct err;
struct expert_cache;

struct expert_counts {
	uint64_t hits, misses; /* matrices that were needed */
	uint64_t bytes;        /* that travelled */
	uint64_t beside;       /* of these while the device computed */
};

/* Slots take at most `bytes` of the device, but there is always one; with 0 there are at most
 * `matrices` of them. `host` is a CPU device; both outlive the cache. */
int expert_cache_new(struct dev *dev, struct dev *host, uint64_t bytes, size_t matrices,
		     struct expert_cache **c_p, struct err *e);
/* Behind the parameters that it has taken. NULL is allowed. */
void expert_cache_free(struct expert_cache *c);
/* Moves a frozen matrix that is complete to the host: p->cached is set. */
int expert_cache_take(struct expert_cache *c, struct param *p, struct err *e);
/* The numbers of a matrix that was taken are on the device until the next call; it is not marked
 * any more. */
int expert_cache_bring(struct param *p, struct err *e);
bool expert_cache_has(const struct param *p); /* whether they are there now */
void expert_cache_want(struct param *p);      /* marks it */
/* Brings a marked one if there is a slot for it. Behind dev_meet() and a product, which it comes
 * beside. */
int expert_cache_ahead(struct param *p, struct err *e);
/* Since the beginning; and since the last call. None of a NULL. */
struct expert_counts expert_cache_counts(const struct expert_cache *c);
void expert_cache_since(struct expert_cache *c, uint64_t *hits_p, uint64_t *misses_p);

#endif
