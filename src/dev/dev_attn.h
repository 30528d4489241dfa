/* SPDX-License-Identifier: Apache-2.0 */
/* dev_attn.h - attention backward on a card with many multiprocessors (attn_bwd of kernel.def).
 *
 * A work-group computes dk and dv of some keys of a key head, from all queries that see them. With
 * one or two key heads and few tokens that is fewer groups than a card has room for, so several
 * share the queries of the same keys: each sums a part of them in float32, and a kernel of its own
 * adds these sums in their order. How many follows from the device's multiprocessors and the shape,
 * never from a clock. Their sums take at most units * D KiB, half of it at widths above 128. */
#ifndef HS_DEV_DEV_ATTN_H
#define HS_DEV_DEV_ATTN_H

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

#endif
