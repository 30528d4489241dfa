/* SPDX-License-Identifier: Apache-2.0 */
/* dev_attn.h - how attention is divided on a card (attn_fwd and attn_bwd of kernel.def).
 *
 * Backward: a work-group computes dk and dv of some keys of a key head, from all queries that see
 * them. With one or two key heads and few tokens that is fewer groups than a card has room for, so
 * several share the queries of the same keys: each sums a part of them in float32, and a kernel of
 * its own adds these sums in their order. How many follows from the device's multiprocessors and
 * the shape, never from a clock. Their sums take at most units * D KiB, half of it at widths above
 * 128.
 *
 * Long sequences: some drivers end a kernel that runs for seconds (a card with a display, WSL,
 * i915 and amdgpu below OpenCL), and attention grows with the square of the sequence. So it is
 * launched in pieces of some key heads each where one launch would be too much work. */
#ifndef HS_DEV_DEV_ATTN_H
#define HS_DEV_DEV_ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* N tokens of S sequences, H query heads, G key heads, D numbers in a head. */
struct dev_attn {
	int64_t n, s, h, g, d, window;
};

/* Parts for a device of so many multiprocessors (dev.units), 1 or more. */
int64_t dev_attn_parts(int units, const struct dev_attn *a);
/* Bytes of `delta` of attn_bwd. */
size_t dev_attn_bytes(const struct dev_attn *a, int64_t parts);
/* Launches for forward or backward, at least 1 and at most G. */
int64_t dev_attn_pieces(const struct dev_attn *a, bool back);

#endif
