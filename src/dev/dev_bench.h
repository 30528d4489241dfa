/* SPDX-License-Identifier: Apache-2.0 */
/* dev_bench.h - what a device does, as a share of what the same device was measured to be able to
 * do, in the same run.
 *
 * Ceilings first: the best matrix product per dtype over a few square shapes, and the bandwidth of
 * a large copy (bytes read plus bytes written). Then one row per product and per kernel at the
 * sizes of a model: a kernel that computes (products, attention) against the ceiling of its dtype,
 * one that moves data against the copy. A share above 1 means that the data lay in a cache. The
 * products of experts are held against one product of as much work. Times
 * are medians of at least 5 runs, of 3 where one takes longer than a second; short work is repeated
 * inside a run. */
#ifndef HS_DEV_DEV_BENCH_H
#define HS_DEV_DEV_BENCH_H

#include "dev/dev.h"

/* Letters as in kernel.def; n tokens in sequences of t (the last may be shorter). With n 0 only the
 * ceilings are measured. */
struct dev_bench_shape {
	int64_t c, f, h, g, d, v, n, t, r;
	bool products;    /* only these, in float32, and their ceiling */
	const char *only; /* of these that of this name alone ("lora B"); NULL: all */
};

enum dev_bench_kind { BENCH_CEILING, BENCH_COPY, BENCH_GEMM, BENCH_KERNEL };

struct dev_bench_row {
	enum dev_bench_kind kind;
	char name[32];    /* "matmul", "copy", "gate,up", "attn_fwd" */
	char shape[64];   /* "nt 2048x1536x576" */
	enum dtype dtype; /* of the activations */
	double seconds;   /* of one call */
	double rate;      /* GFLOP/s when `flops`, else GB/s */
	bool flops;
	double share; /* rate / the ceiling it is held against; 1 for the ceilings themselves */
};

typedef void (*dev_bench_row_fn)(void *ctx, const struct dev_bench_row *row);

/* Calls `row` as results come. Dtypes that the device lacks are left out. Fails when memory is
 * short or a launch fails; ERR_USAGE: no product is called s->only. */
int dev_bench(struct dev *d, const struct dev_bench_shape *s, dev_bench_row_fn row, void *ctx,
	      struct err *e);

#endif
