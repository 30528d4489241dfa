/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - see tensors.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/tensors.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>

void tensors_init(struct tensors *ts, struct dev *d, uint64_t seed)
{
	*ts = (struct tensors){ .dev = d, .seed = seed };
}

void tensors_release(struct tensors *ts)
{
	for (struct tensor64 *x = ts->all, *next; x; x = next) {
		next = x->next;
		dev_free(x->b);
		mem_free(x->v);
		mem_free(x->i);
		mem_free(x->u);
		mem_free(x);
	}
	ts->all = NULL;
}

static struct tensor64 *new (struct tensors *ts, enum dtype t, int64_t n)
{
	struct err e = { 0 };
	struct tensor64 *x = mem_zalloc(sizeof *x);
	assert_non_null(x);
	x->n = n;
	x->t = t;
	x->v = mem_array((size_t)n + 1, sizeof *x->v);
	assert_non_null(x->v);
	if (dev_alloc(ts->dev, (size_t)n * dtype_size(t), &x->b, &e) < 0)
		fail_msg("%s", e.msg);
	x->next = ts->all;
	ts->all = x;
	return x;
}

static void upload(struct tensor64 *x)
{
	struct err e = { 0 };
	const size_t bytes = (size_t)x->n * dtype_size(x->t);
	void *raw = x->t == DT_I32 ? (void *)x->i : (void *)x->u, *tmp = NULL;
	if (!raw) {
		float *f = mem_alloc((size_t)x->n * sizeof *f);
		raw = tmp = mem_alloc(bytes);
		assert_true(f && raw);
		for (int64_t i = 0; i < x->n; i++)
			f[i] = (float)x->v[i];
		dtype_from_f32(x->t, f, raw, (uint64_t)x->n);
		dtype_to_f32(x->t, raw, f, (uint64_t)x->n);
		for (int64_t i = 0; i < x->n; i++)
			x->v[i] = (double)f[i];
		mem_free(f);
	}
	if (dev_upload(DEV_REF(x->b, 0), raw, bytes, &e) < 0)
		fail_msg("%s", e.msg);
	mem_free(tmp);
}

struct tensor64 *tensor_normal(struct tensors *ts, enum dtype t, int64_t n, double scale)
{
	struct tensor64 *x = new (ts, t, n);
	const struct rng_key key = rng_key(rng_fold(ts->seed, ts->drawn++));
	for (int64_t i = 0; i < n; i++)
		x->v[i] = scale * (double)rng_normal(key, (uint64_t)i);
	upload(x);
	return x;
}

struct tensor64 *tensor_const(struct tensors *ts, enum dtype t, int64_t n, double c)
{
	struct tensor64 *x = new (ts, t, n);
	for (int64_t i = 0; i < n; i++)
		x->v[i] = c;
	upload(x);
	return x;
}

struct tensor64 *tensor_nan(struct tensors *ts, enum dtype t, int64_t n)
{
	return tensor_const(ts, t, n, (double)NAN);
}

void tensor_put(struct tensor64 *x, int64_t i, double v)
{
	x->v[i] = v;
	upload(x);
}

struct tensor64 *tensor_copy(struct tensors *ts, const struct tensor64 *x)
{
	struct tensor64 *y = new (ts, x->t, x->n);
	for (int64_t i = 0; i < x->n; i++)
		y->v[i] = x->v[i];
	upload(y);
	return y;
}

struct tensor64 *tensor_i32(struct tensors *ts, const int32_t *v, int64_t n)
{
	struct tensor64 *x = new (ts, DT_I32, n);
	x->i = mem_array((size_t)n + 1, sizeof *x->i);
	assert_non_null(x->i);
	for (int64_t i = 0; i < n; i++)
		x->i[i] = v[i];
	upload(x);
	return x;
}

struct tensor64 *tensor_below(struct tensors *ts, int64_t n, int32_t limit)
{
	int32_t *v = mem_array((size_t)n + 1, sizeof *v);
	assert_non_null(v);
	const struct rng_key key = rng_key(rng_fold(ts->seed, ts->drawn++));
	for (int64_t i = 0; i < n; i++)
		v[i] = (int32_t)rng_below(key, (uint64_t)i, (uint64_t)limit);
	struct tensor64 *x = tensor_i32(ts, v, n);
	mem_free(v);
	return x;
}

struct tensor64 *tensor_bytes(struct tensors *ts, int64_t n)
{
	struct tensor64 *x = new (ts, DT_U8, n);
	x->u = mem_array((size_t)n + 1, 1);
	assert_non_null(x->u);
	const struct rng_key key = rng_key(rng_fold(ts->seed, ts->drawn++));
	for (int64_t i = 0; i < n; i++)
		x->u[i] = (uint8_t)rng_u32(key, (uint64_t)i);
	upload(x);
	return x;
}

double *tensor_fetch(struct tensors *ts, const struct tensor64 *x)
{
	(void)ts;
	struct err e = { 0 };
	const size_t bytes = (size_t)x->n * dtype_size(x->t);
	void *raw = mem_alloc(bytes);
	float *f = mem_alloc((size_t)x->n * sizeof *f);
	double *v = mem_array((size_t)x->n + 1, sizeof *v);
	assert_true(raw && f && v);
	if (dev_download(raw, DEV_REF(x->b, 0), bytes, &e) < 0)
		fail_msg("%s", e.msg);
	dtype_to_f32(x->t, raw, f, (uint64_t)x->n);
	for (int64_t i = 0; i < x->n; i++)
		v[i] = (double)f[i];
	mem_free(raw);
	mem_free(f);
	return v;
}

void tensor_check(struct tensors *ts, const struct tensor64 *x, const double *want, double rel,
		  double abs, const char *what, ...)
{
	char name[96];
	va_list ap;
	va_start(ap, what);
	vsnprintf(name, sizeof name, what, ap);
	va_end(ap);
	double *got = tensor_fetch(ts, x), max = ts->floor;
	int64_t bad = 0, first = -1;
	for (int64_t i = 0; i < x->n; i++)
		if (fabs(want[i]) > max)
			max = fabs(want[i]);
	for (int64_t i = 0; i < x->n; i++) {
		uint64_t bits;
		memcpy(&bits, &got[i], sizeof bits);
		ts->hash = rng_fold(ts->hash, bits);
	}
	/* half the distance of float16's smallest numbers: no kernel can come nearer */
	const double least = x->t == DT_F16 ? 0x1.01p-25 : 0;
	for (int64_t i = 0; i < x->n; i++) {
		if (isnan(want[i]) && isnan(got[i]))
			continue;
		double tol = rel * fabs(want[i]) + abs * max + least,
		       diff = got[i] == want[i] ? 0 : fabs(got[i] - want[i]);
		double share = diff == 0 ? 0 : diff / tol;
		if (!(diff <= tol)) {
			bad++;
			if (first < 0)
				first = i;
		}
		if (!(share <= ts->worst)) {
			ts->worst = share;
			snprintf(ts->worst_of, sizeof ts->worst_of, "%s", name);
		}
	}
	if (bad) {
		ts->failed++;
		print_error("FAIL %s %s: %lld of %lld wrong; [%lld] is %.9g, want %.9g\n", name,
			    dtype_name(x->t), (long long)bad, (long long)x->n, (long long)first,
			    got[first], want[first]);
	}
	mem_free(got);
}

void tensor_launch(struct tensors *ts, enum dev_kernel k, enum dtype t, const union dev_arg *args)
{
	struct err e = { 0 };
	const uint64_t before = mem_count();
	if (dev_launch(ts->dev, k, t, args, &e) < 0)
		fail_msg("%s: %s", dev_kernel_name(k), e.msg);
	ts->launch_allocs += mem_count() - before;
}
