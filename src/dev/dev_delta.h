/* SPDX-License-Identifier: Apache-2.0 */
/* dev_delta.h - how the backward pass of the gated delta rule is divided on a card (delta_bwd of
 * kernel.def).
 *
 * A work-group goes through a sequence for one value head, token by token. Its backward pass needs
 * the state before each token. Kept are those before every few tokens, a chunk, about the square
 * root of all, and those between are computed again, a chunk at a time. Several groups of one head,
 * the parts, work on different sequences. */
#ifndef HS_DEV_DEV_DELTA_H
#define HS_DEV_DEV_DELTA_H

#include <stddef.h>
#include <stdint.h>

enum { DELTA_MOST = 128 }; /* numbers of a key, and of a value */

/* N tokens of S sequences, H value heads, keys of K numbers and values of V. */
struct dev_delta {
	int64_t n, s, h, k, v;
};

int64_t dev_delta_chunk(const struct dev_delta *d);
/* Parts for a device of so many multiprocessors (dev.units), from 1 to S. */
int64_t dev_delta_parts(int units, const struct dev_delta *d);
/* Bytes of `sums` of delta_bwd. */
size_t dev_delta_bytes(const struct dev_delta *d, int64_t parts);

#endif
