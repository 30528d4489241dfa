/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_tune.c - see gpu_tune.h. */
#include "dev/gpu_tune.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXT "shape"
enum { USUAL = 1, SIDE = 512, LARGER = 1024, RUNS = 3 };
enum { ROWS = 2048, COLUMNS = 16, DEPTH = 512 }; /* of few columns, like an adapter's */
static const double too_short = 2e-3;            /* seconds of a run: the larger side is timed */

bool gpu_tune_asks(const struct dev_gemm *g, int best)
{
	return best < 0 && (double)g->m * (double)g->n * (double)g->k >= 6e7 &&
	       gpu_gemm_shape(g, USUAL) == USUAL;
}

/* Seconds of the best run; below 0: it failed. The first run, which may compile, does not count. */
static double time_of(struct dev *d, const struct dev_gemm *g, int shape, gpu_product_fn run)
{
	struct err ignored = { 0 };
	double least = -1;
	for (int i = 0; i <= RUNS; i++) {
		const int64_t begin = clock_now();
		if (run(d, g, shape, &ignored) < 0 || dev_sync(d, &ignored) < 0)
			return -1;
		const double took = clock_seconds(clock_now() - begin);
		if (i && (least < 0 || took < least))
			least = took;
	}
	return least;
}

/* Products (m,k) by (n,k)^T of zeros. */
struct timed {
	struct dev_buf *b[3];
	struct dev_gemm g;
};

static bool timed_init(struct timed *w, struct dev *d, enum dtype t, int64_t m, int64_t n,
		       int64_t k)
{
	const int64_t numbers[] = { m * k, n * k, m * n };
	struct err ignored = { 0 };
	bool ok = true;
	*w = (struct timed){ 0 };
	for (int i = 0; i < 3 && ok; i++) {
		const size_t bytes = (size_t)numbers[i] * dtype_size(t);
		ok = dev_alloc(d, bytes, &w->b[i], &ignored) == 0 &&
		     dev_zero(DEV_REF(w->b[i], 0), bytes, &ignored) == 0;
	}
	w->g = (struct dev_gemm){ .m = m,
				  .n = n,
				  .k = k,
				  .tb = true,
				  .a = { w->b[0], 0 },
				  .b = { w->b[1], 0 },
				  .c = { w->b[2], 0 },
				  .lda = k,
				  .ldb = k,
				  .ldc = n,
				  .ab_dtype = t,
				  .c_dtype = t,
				  .alpha = 1 };
	return ok;
}

static void timed_release(struct timed *w)
{
	for (int i = 0; i < 3; i++)
		dev_free(w->b[i]);
}

/* The quickest shape for square products of `side`; -1: none could be run. */
static int quickest(struct dev *d, enum dtype t, int64_t side, gpu_product_fn run, double *least_p)
{
	struct timed w;
	int best = -1;
	const bool ok = timed_init(&w, d, t, side, side, side);
	for (int i = 0; i < GPU_LARGE && ok; i++) {
		const double took = time_of(d, &w.g, i, run);
		if (took >= 0 && (best < 0 || took < *least_p)) {
			best = i;
			*least_p = took;
		}
	}
	timed_release(&w);
	return best;
}

/* Whether the shape for few columns is quicker there than what would be used without it. */
static bool few_are_quicker(struct dev *d, enum dtype t, int best, gpu_product_fn run)
{
	struct timed w;
	bool quicker = false;
	if (timed_init(&w, d, t, ROWS, COLUMNS, DEPTH)) {
		const double without = time_of(d, &w.g, gpu_gemm_shape(&w.g, best), run),
			     with = time_of(d, &w.g, GPU_SHAPES - 1, run);
		quicker = with >= 0 && (without < 0 || with < without);
	}
	timed_release(&w);
	return quicker;
}

static int measure(struct dev *d, enum dtype t, gpu_product_fn run)
{
	double least = 0;
	int best = quickest(d, t, SIDE, run, &least);
	if (best >= 0 && least < too_short) {
		const int larger = quickest(d, t, LARGER, run, &least);
		best = larger < 0 ? best : larger;
	}
	return best >= 0 && few_are_quicker(d, t, best, run) ? best + GPU_LARGE : best;
}

static bool kept(const char key[GPU_KEY], int *best_p)
{
	struct buf b = BUF_INIT;
	const bool ok = gpu_cache_get(key, EXT, &b) && b.n == 1 && b.p[0] >= '0' &&
			b.p[0] < '0' + 2 * GPU_LARGE;
	if (ok)
		*best_p = b.p[0] - '0';
	buf_release(&b);
	return ok;
}

int gpu_tune(struct dev *d, const struct dev_gemm *g, const char key[GPU_KEY], gpu_product_fn run,
	     int *best_p)
{
	const char *own = getenv("HS_GEMM_SHAPE");
	if (own && own[0] >= '0' && own[0] < '0' + GPU_SHAPES && !own[1])
		return own[0] - '0';
	if (gpu_tune_asks(g, *best_p) && !kept(key, best_p)) {
		*best_p = USUAL; /* what is measured asks no more */
		const int best = measure(d, g->ab_dtype, run);
		if (best >= 0) {
			const char digit = (char)('0' + best);
			*best_p = best;
			gpu_cache_put(key, EXT, &digit, 1);
			log_debug("%s:%d: products of %s in shape %d%s", d->be->name, d->index,
				  dtype_name(g->ab_dtype), best % GPU_LARGE,
				  best < GPU_LARGE ? "" : ", those of few columns in the last");
		}
	}
	return gpu_gemm_shape(g, *best_p < 0 ? USUAL : *best_p);
}
