/* SPDX-License-Identifier: Apache-2.0 */
/* dev_null.h - a device that computes nothing and counts what it was asked to do: the smallest
 * backend, the example for new ones, and what tests everything above a device without arithmetic.
 * Its memory is host memory, so transfers, copies and clearing work. */
#ifndef HS_DEV_DEV_NULL_H
#define HS_DEV_DEV_NULL_H

#include "dev/dev.h"

struct dev_null_counts {
	uint64_t launches, gemms;
	uint64_t entries;    /* what the launches take on a GPU (gpu.h) */
	uint64_t copies;     /* and clearings, inside the device */
	uint64_t gemm_flops; /* 2 m n k each */
	uint64_t gemm_bytes; /* A, B, C, and D where it is added, once each */
	uint64_t upload_bytes, download_bytes, copy_bytes, zero_bytes;
	uint64_t kernel[K_COUNT]; /* launches of each */
};

/* The device's counters (the caller may clear them); NULL when `d` is not a null device. */
struct dev_null_counts *dev_null_counts(struct dev *d);

#endif
