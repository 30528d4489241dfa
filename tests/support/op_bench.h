/* SPDX-License-Identifier: Apache-2.0 */
/* op_bench.h - one op on the CPU with random inputs and parameters, and its gradients against
 * finite differences along random directions.
 *
 * With L = sum(g * y), backward gives dL/dx; along a direction d, (L(x + h d) - L(x - h d)) / 2h
 * must be <dL/dx, d>. Forward runs in float32, so h is large and the comparison relative to the
 * size of what is compared. */
#ifndef HS_TESTS_SUPPORT_OP_BENCH_H
#define HS_TESTS_SUPPORT_OP_BENCH_H

#include "base/arena.h"
#include "support/ok.h"
#include "tensor/ops.h"

/* Sizes of the cases; TRAINED: of vocabulary rows. */
enum { N = 13, C = 34, R = 3, OUT = 22, H = 6, G = 2, D = 8, V = 37, TRAINED = 7 };

struct bench {
	struct dev *dev;
	struct dmem mem, scratch;
	struct arena host;
	struct tape tape;
	uint64_t key;
	struct tensor *in[3]; /* differentiated inputs */
	/* what the op was applied to: copies, because some ops overwrite their inputs */
	struct tensor *used[3];
	struct param *par[4]; /* differentiated parameters */
	size_t nin, npar;
	struct param store[4], frozen[3];
	size_t nfrozen;
	struct dev_ref ids, pos, freq, starts, rows, labels;
	int (*build)(struct bench *b, struct tensor **y_p, struct err *e);
};

void bench_open(struct bench *b);
void bench_close(struct bench *b);
void bench_fill(struct bench *b, float *v, int64_t n, float size); /* normal, times size */
/* What is differentiated, or not (frozen). */
struct tensor *bench_input(struct bench *b, int ndim, const int64_t *dim);
struct param *bench_param(struct bench *b, int ndim, int64_t rows, int64_t cols);
struct param *bench_frozen(struct bench *b, int64_t rows, int64_t cols);
struct dev_ref bench_ints(struct bench *b, const int32_t *v, int64_t n);
float *bench_host(struct dev_ref r);
/* The largest relative error over all inputs and parameters. `unit`: the op computes the gradient
 * of the plain sum of its outputs. */
double bench_check(struct bench *b, bool unit);

#endif
