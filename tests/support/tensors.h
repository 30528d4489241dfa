/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.h - arrays for device tests: values in float64 on the host beside a device buffer of some
 * dtype.
 *
 * Random values are rounded to the dtype first, so that host and device hold the same numbers.
 * Poisoned arrays are full of NaN: what a kernel fails to write shows. Everything made here goes
 * with tensors_release(). */
#ifndef HS_TESTS_SUPPORT_TENSORS_H
#define HS_TESTS_SUPPORT_TENSORS_H

#include "dev/dev.h"

struct tensor64 {
	double *v;  /* n values */
	int32_t *i; /* the same for DT_I32, else NULL */
	uint8_t *u; /* the same for DT_U8, else NULL */
	int64_t n;
	enum dtype t;
	struct dev_buf *b;
	struct tensor64 *next;
};

struct tensors {
	struct dev *dev;
	struct tensor64 *all;
	uint64_t seed, drawn;
	double floor; /* least scale of errors: the size of the numbers that cancel in a result */
	double worst; /* largest error so far as a share of its tolerance */
	char worst_of[96];
	int failed;
	uint64_t hash;          /* of all values that were checked; changes with any bit */
	uint64_t launch_allocs; /* allocations of host memory inside launches */
};

void tensors_init(struct tensors *ts, struct dev *d, uint64_t seed);
void tensors_release(struct tensors *ts); /* frees the arrays, keeps seed and verdicts */

struct tensor64 *tensor_normal(struct tensors *ts, enum dtype t, int64_t n, double scale);
struct tensor64 *tensor_nan(struct tensors *ts, enum dtype t, int64_t n);
struct tensor64 *tensor_const(struct tensors *ts, enum dtype t, int64_t n, double c);
void tensor_put(struct tensor64 *x, int64_t i, double v); /* element i becomes v */
/* a buffer of its own with the same values */
struct tensor64 *tensor_copy(struct tensors *ts, const struct tensor64 *x);
struct tensor64 *tensor_i32(struct tensors *ts, const int32_t *v, int64_t n);
/* random i32 in [0, limit) */
struct tensor64 *tensor_below(struct tensors *ts, int64_t n, int32_t limit);
struct tensor64 *tensor_bytes(struct tensors *ts, int64_t n); /* random u8 */

/* Whether the device's values are those of `want` (x->n numbers): |got - want| <= rel*|want| +
 * abs*max(|want|, floor). NaN is wanted where `want` is NaN. Prints and counts a failure; remembers
 * the largest error. */
void tensor_check(struct tensors *ts, const struct tensor64 *x, const double *want, double rel,
		  double abs, const char *what, ...) __attribute__((format(printf, 6, 7)));
/* The device's values as float64 (mem_free by the caller). */
double *tensor_fetch(struct tensors *ts, const struct tensor64 *x);

/* Arguments of a launch. */
#define AB(x) ((union dev_arg){ .b = { (x)->b, 0 } })
#define ANONE ((union dev_arg){ .b = { NULL, 0 } })
#define AI(x) ((union dev_arg){ .i = (x) })
#define AF(x) ((union dev_arg){ .f = (float)(x) })
#define AU(x) ((union dev_arg){ .u = (x) })
/* Fails the test on an error. */
void tensor_launch(struct tensors *ts, enum dev_kernel k, enum dtype t, const union dev_arg *args);
#define LAUNCH(ts, k, t, ...) tensor_launch(ts, k, t, (const union dev_arg[]){ __VA_ARGS__ })

#endif
