/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_ahead.h - which kernels may run beside the work in front of them, for backends with a queue
 * in order and one beside it (CUDA, HIP, OpenCL).
 *
 * Expanding weights of 4 bits moves bytes, and the product in front of it computes: they run side
 * by side. A fork is a point in front of the last work that reads expanded weights. A kernel that
 * expands waits only for the fork, if nothing behind the fork names its buffers, and goes to the
 * other queue; what is given afterwards waits for it as for any other. How a device waits is its
 * backend's. */
#ifndef HS_DEV_GPU_AHEAD_H
#define HS_DEV_GPU_AHEAD_H

#include "dev/dev.h"

/* What stands behind a dev_buf's handle begins with this. Works and transfers are numbered from 1
 * by the backend. */
struct gpu_named {
	uint64_t work;  /* the last one that names it */
	uint64_t ahead; /* the same, if that ran ahead */
	uint64_t copy;  /* the last transfer that names it */
	bool panel;     /* weights are expanded into it */
};

struct gpu_ahead {
	bool forked;            /* there is a fork */
	uint64_t works, copies; /* in front of it: works given, transfers waited for */
	uint64_t count;         /* kernels that ran ahead so far */
};

/* A kernel that expands weights, with arguments `a` by `sig`. */
bool gpu_may_run_ahead(const struct gpu_ahead *h, const char *sig, const union dev_arg *a);
/* It did: behind the backend's numbering of its buffers. */
void gpu_ran_ahead(struct gpu_ahead *h, const char *sig, const union dev_arg *a);
/* It reads expanded weights, so it has a fork in front of it. */
bool gpu_reads_panel(const char *sig, const union dev_arg *a);

static inline struct gpu_named *gpu_named_of(const struct dev_buf *b)
{
	return (struct gpu_named *)(uintptr_t)b->handle;
}

static inline void gpu_forked(struct gpu_ahead *h, uint64_t works, uint64_t copies)
{
	h->forked = true;
	h->works = works;
	h->copies = copies;
}

#endif
