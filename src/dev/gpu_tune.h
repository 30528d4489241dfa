/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_tune.h - which shapes of the portable matrix product (gpu.h) are the quickest on a device,
 * for large products and for those of few columns or rows: each is timed once, and the answer is
 * kept in the kernel cache. All shapes give the same bits, so what the clock says changes no
 * number. */
#ifndef HS_DEV_GPU_TUNE_H
#define HS_DEV_GPU_TUNE_H

#include "dev/gpu.h"
#include "dev/gpu_cache.h"

/* A product of the device's in a shape. */
typedef int (*gpu_product_fn)(struct dev *d, const struct dev_gemm *g, int shape, struct err *e);

/* The shape for `g`. *best_p is the device's for its dtype, -1 where it was not asked for yet; only
 * a product large enough to show it asks. `key`: of the device, its driver and the kernels' text.
 * HS_GEMM_SHAPE=0..5 names a shape. */
int gpu_tune(struct dev *d, const struct dev_gemm *g, const char key[GPU_KEY], gpu_product_fn run,
	     int *best_p);

/* Whether gpu_tune() would use the key. */
bool gpu_tune_asks(const struct dev_gemm *g, int best);

#endif
