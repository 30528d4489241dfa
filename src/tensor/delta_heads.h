/* SPDX-License-Identifier: Apache-2.0 */
/* delta_heads.h - the heads of linear attention by the gated delta rule (kernel.def: delta_fwd). */
#ifndef HS_TENSOR_DELTA_HEADS_H
#define HS_TENSOR_DELTA_HEADS_H

#include <stdint.h>

struct delta_heads {
	int64_t keys, values, dk, dv; /* heads, and the numbers of a key and of a value */
};

/* Columns of queries, keys and values together. */
static inline int64_t delta_width(const struct delta_heads *h)
{
	return 2 * h->keys * h->dk + h->values * h->dv;
}

#endif
