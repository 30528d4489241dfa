/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_conv.c - cases of the kernels of convolutions and pooling. */
#include "support/kernel_case.h"
#include "support/ref64.h"

#include "base/err.h"

static const struct ref_conv convs[] = {
	{ 1, 1, 1, 1, 1, 1, 1, 0, 0 },   { 2, 3, 7, 5, 3, 3, 1, 1, 1 },
	{ 3, 2, 9, 11, 5, 3, 2, 2, 0 },  { 2, 5, 1, 37, 1, 5, 1, 0, 2 },
	{ 1, 7, 13, 13, 4, 4, 3, 3, 1 }, { 5, 1, 28, 28, 3, 3, 1, 0, 0 },
};

static int64_t count_windows(const struct ref_conv *k)
{
	return ((k->y + 2 * k->py - k->ky) / k->s + 1) * ((k->x + 2 * k->px - k->kx) / k->s + 1);
}

void case_im2col(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(convs); s++) {
		const struct ref_conv k = convs[s];
		const int64_t all = k.n * count_windows(&k) * k.c * k.ky * k.kx;
		struct tensor64 *x = tensor_normal(ts, t, k.n * k.c * k.y * k.x, 1),
				*cols = tensor_nan(ts, t, all);
		double *want = nans(all);
		ref_im2col(want, x->v, &k);
		LAUNCH(ts, K_im2col, t, AB(cols), AB(x), AI(k.n), AI(k.c), AI(k.y), AI(k.x),
		       AI(k.ky), AI(k.kx), AI(k.s), AI(k.py), AI(k.px));
		tensor_check(ts, cols, want, 0, 0, "im2col %d", (int)s);
		mem_free(want);
	}
}

void case_col2im(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(convs) * 2; s++) {
		const struct ref_conv k = convs[s / 2];
		const bool acc = s & 1;
		const int64_t all = k.n * k.c * k.y * k.x;
		struct tensor64 *dcols = tensor_normal(
					ts, t, k.n * count_windows(&k) * k.c * k.ky * k.kx, 1),
				*dx = acc ? tensor_normal(ts, t, all, 1) : tensor_nan(ts, t, all);
		double *want = copy(dx);
		if (!acc)
			memset(want, 0, (size_t)all * sizeof *want);
		ref_col2im(want, dcols->v, &k);
		LAUNCH(ts, K_col2im, t, AB(dx), AB(dcols), AI(k.n), AI(k.c), AI(k.y), AI(k.x),
		       AI(k.ky), AI(k.kx), AI(k.s), AI(k.py), AI(k.px), AI(acc));
		tensor_check(ts, dx, want, rel_of(t), abs_of(t), "col2im %d acc %d", (int)s / 2,
			     acc);
		mem_free(want);
	}
}

void case_swap_axes(struct tensors *ts, enum dtype t)
{
	static const int64_t dims[][3] = { { 1, 1, 1 }, { 3, 5, 7 }, { 2, 37, 64 }, { 1, 131, 3 } };
	for (size_t s = 0; s < ARRAY_LEN(dims) * 2; s++) {
		const int64_t n = dims[s / 2][0], a = dims[s / 2][1], b = dims[s / 2][2];
		const bool acc = s & 1;
		struct tensor64 *x = tensor_normal(ts, t, n * a * b, 1),
				*y = acc ? tensor_normal(ts, t, n * a * b, 1)
					 : tensor_nan(ts, t, n * a * b);
		double *want = copy(y);
		for (int64_t i = 0; i < n * a * b; i++) {
			const int64_t from = i / (a * b) * a * b + i % a * b + i / a % b;
			want[i] = x->v[from] + (acc ? want[i] : 0);
		}
		LAUNCH(ts, K_swap_axes, t, AB(y), AB(x), AI(n), AI(a), AI(b), AI(acc));
		tensor_check(ts, y, want, rel_of(t), abs_of(t), "swap_axes %lld", (long long)n);
		mem_free(want);
	}
}

static const struct ref_conv pools[] = {
	{ 1, 1, 1, 1, 1, 1, 1, 0, 0 },  { 3, 1, 8, 6, 2, 2, 2, 0, 0 },
	{ 7, 1, 9, 11, 3, 3, 2, 0, 0 }, { 2, 1, 13, 13, 4, 4, 1, 0, 0 },
	{ 5, 1, 17, 7, 2, 2, 3, 0, 0 },
};

void case_pool_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(pools) * 2; s++) {
		const struct ref_conv k = pools[s / 2];
		const int64_t kind = s & 1, all = k.n * count_windows(&k);
		struct tensor64 *x = tensor_normal(ts, t, k.n * k.y * k.x, 1),
				*y = tensor_nan(ts, t, all), *at = tensor_below(ts, all, 1);
		if (x->n > 1) /* a NaN does not end as a number */
			tensor_put(x, x->n / 2, (double)NAN);
		double *want = nans(all);
		int32_t *place = mem_array((size_t)all, sizeof *place),
			*found = mem_array((size_t)all, sizeof *found);
		ref_pool_fwd(want, place, x->v, &k, kind);
		LAUNCH(ts, K_pool_fwd, t, AB(y), AB(at), AB(x), AI(k.n), AI(k.y), AI(k.x), AI(k.ky),
		       AI(k.s), AI(kind));
		tensor_check(ts, y, want, rel_of(t), abs_of(t), "pool_fwd %d kind %d", (int)s / 2,
			     (int)kind);
		struct err e = { 0 };
		assert_int_equal(dev_download(found, DEV_REF(at->b, 0), (size_t)all * 4, &e), 0);
		assert_memory_equal(found, place, (size_t)all * 4);
		LAUNCH(ts, K_pool_fwd, t, AB(y), ANONE, AB(x), AI(k.n), AI(k.y), AI(k.x), AI(k.ky),
		       AI(k.s), AI(kind));
		mem_free(want);
		mem_free(found);
		mem_free(place);
	}
}

void case_pool_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(pools) * 4; s++) {
		const struct ref_conv k = pools[s / 4];
		const int64_t kind = s & 1, all = k.n * count_windows(&k), size = k.n * k.y * k.x;
		const bool acc = s & 2;
		struct tensor64 *x = tensor_normal(ts, t, size, 1),
				*dy = tensor_normal(ts, t, all, 1),
				*dx = acc ? tensor_normal(ts, t, size, 1) : tensor_nan(ts, t, size);
		double *y = nans(all), *want = copy(dx);
		int32_t *place = mem_array((size_t)all, sizeof *place);
		ref_pool_fwd(y, place, x->v, &k, kind);
		struct tensor64 *at = tensor_i32(ts, place, all);
		if (!acc)
			memset(want, 0, (size_t)size * sizeof *want);
		ref_pool_bwd(want, dy->v, place, &k, kind);
		if (kind)
			LAUNCH(ts, K_pool_bwd, t, AB(dx), AB(dy), ANONE, AI(k.n), AI(k.y), AI(k.x),
			       AI(k.ky), AI(k.s), AI(kind), AI(acc));
		else
			LAUNCH(ts, K_pool_bwd, t, AB(dx), AB(dy), AB(at), AI(k.n), AI(k.y), AI(k.x),
			       AI(k.ky), AI(k.s), AI(kind), AI(acc));
		tensor_check(ts, dx, want, rel_of(t), abs_of(t), "pool_bwd %d kind %d acc %d",
			     (int)s / 4, (int)kind, acc);
		mem_free(y);
		mem_free(want);
		mem_free(place);
	}
}
