/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_kernels.c - every kernel of every backend that computes, in every dtype it has, against
 * float64. Shapes hold primes and ones; outputs are full of NaN before a launch. Verdicts: ok,
 * FAIL, unsupported (the backend has no such kernel for the dtype), skipped (this machine has no
 * such device). HS_SEED sets the seed; the CPU runs once for each compilation of its kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dev/cpu/cpu.h"
#include "dev/opencl.h"
#include "support/cards.h"
#include "support/kernel_case.h"
#include "support/ref64.h"
#include "support/tensors.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;

static const int64_t shapes[][2] = { { 1, 1 },    { 1, 576 },   { 3, 17 },  { 37, 64 },
				     { 131, 97 }, { 300, 320 }, { 7, 2053 } };

static void case_embed_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], v = c == 17 ? 152064 : 53;
		struct tensor64 *table = tensor_normal(ts, t, v * c, 1),
				*ids = tensor_below(ts, n, (int32_t)v),
				*y = tensor_nan(ts, t, n * c);
		LAUNCH(ts, K_embed_fwd, t, AB(y), AB(table), AB(ids), AI(n), AI(c));
		double *want = nans(n * c);
		ref_embed_fwd(want, table->v, ids->i, n, c);
		tensor_check(ts, y, want, 0, 0, "embed_fwd %lldx%lld", (long long)n, (long long)c);
		mem_free(want);
	}
}

static void case_embed_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], v = c == 17 ? 152064 : 11;
		struct tensor64 *d = tensor_normal(ts, DT_F32, v * c, 1),
				*ids = tensor_below(ts, n, (int32_t)v),
				*dy = tensor_normal(ts, t, n * c, 1);
		LAUNCH(ts, K_embed_bwd, t, AB(d), AB(dy), AB(ids), AI(n), AI(c));
		double *want = copy(d);
		ref_embed_bwd(want, dy->v, ids->i, n, c);
		tensor_check(ts, d, want, 2e-6, 2e-6, "embed_bwd %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_gather_rows(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], v = n + 5;
		struct tensor64 *x = tensor_normal(ts, t, v * c, 1),
				*idx = tensor_below(ts, n, (int32_t)v),
				*y = tensor_nan(ts, t, n * c);
		LAUNCH(ts, K_gather_rows, t, AB(y), AB(x), AB(idx), AI(n), AI(c));
		double *want = nans(n * c);
		ref_embed_fwd(want, x->v, idx->i, n, c);
		tensor_check(ts, y, want, 0, 0, "gather_rows %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_scatter_rows(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], v = 2 * n + 1;
		int32_t *at = mem_array((size_t)n, sizeof *at);
		for (int64_t i = 0; i < n; i++)
			at[i] = (int32_t)(v - 1 - 2 * i);
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1), *idx = tensor_i32(ts, at, n),
				*y = tensor_normal(ts, t, v * c, 1);
		LAUNCH(ts, K_scatter_rows, t, AB(y), AB(x), AB(idx), AI(n), AI(c));
		double *want = copy(y);
		for (int64_t i = 0; i < n; i++)
			memcpy(want + at[i] * c, x->v + i * c, (size_t)c * sizeof *want);
		tensor_check(ts, y, want, 0, 0, "scatter_rows %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
		mem_free(at);
	}
}

static void case_copy_columns(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], ldy = c + (int64_t)(s % 3),
			      ldx = 2 * c + 1;
		struct tensor64 *x = tensor_normal(ts, t, n * ldx, 1),
				*y = tensor_normal(ts, t, n * ldy, 1);
		double *want = copy(y);
		for (int64_t i = 0; i < n; i++)
			memcpy(want + i * ldy, x->v + i * ldx, (size_t)c * sizeof *want);
		LAUNCH(ts, K_copy_columns, t, AB(y), AB(x), AI(n), AI(c), AI(ldy), AI(ldx));
		tensor_check(ts, y, want, 0, 0, "copy_columns %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_spread(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], h = 1 + (int64_t)(s % 3),
			      ldy = c + (int64_t)(s % 2);
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1),
				*y = tensor_normal(ts, t, n * h * ldy, 1);
		double *want = copy(y);
		for (int64_t i = 0; i < n * h; i++)
			memcpy(want + i * ldy, x->v + i / h * c, (size_t)c * sizeof *want);
		LAUNCH(ts, K_spread, t, AB(y), AB(x), AI(n), AI(h), AI(c), AI(ldy));
		tensor_check(ts, y, want, 0, 0, "spread %lldx%lld", (long long)n, (long long)c);
		mem_free(want);
	}
}

static void case_fold(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1], h = 1 + (int64_t)(s % 5),
			      ldy = c + (int64_t)(s % 2), acc = (int64_t)(s % 2);
		struct tensor64 *dy = tensor_normal(ts, t, n * h * ldy, 1),
				*dx = acc ? tensor_normal(ts, t, n * c, 1)
					  : tensor_nan(ts, t, n * c);
		double *want = copy(dx);
		for (int64_t i = 0; i < n * c; i++) {
			double sum = acc ? want[i] : 0;
			for (int64_t k = 0; k < h; k++)
				sum += dy->v[(i / c * h + k) * ldy + i % c];
			want[i] = sum;
		}
		LAUNCH(ts, K_fold, t, AB(dx), AB(dy), AI(n), AI(h), AI(c), AI(ldy), AI(acc));
		tensor_check(ts, dx, want, rel_of(t), abs_of(t), "fold %lldx%lldx%lld",
			     (long long)n, (long long)h, (long long)c);
		mem_free(want);
	}
}

/* Positive numbers away from 0, to divide by. */
static struct tensor64 *positive(struct tensors *ts, int64_t n)
{
	struct tensor64 *x = tensor_normal(ts, DT_F32, n, 1);
	struct err e = { 0 };
	for (int64_t i = 0; i < n; i++) {
		const float v = (float)(0.5 + fabs(x->v[i]));
		x->v[i] = (double)v;
		assert_int_equal(dev_upload(DEV_REF(x->b, (size_t)i * 4), &v, 4, &e), 0);
	}
	return x;
}

static void case_row_norms(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *x = tensor_normal(ts, DT_F32, n * c, 1),
				*y = tensor_nan(ts, DT_F32, n);
		double *want = nans(n);
		for (int64_t i = 0; i < n; i++) {
			double sum = 0;
			for (int64_t j = 0; j < c; j++)
				sum += x->v[i * c + j] * x->v[i * c + j];
			want[i] = sqrt(sum);
		}
		LAUNCH(ts, K_row_norms, t, AB(y), AB(x), AI(n), AI(c));
		tensor_check(ts, y, want, 2e-6, 1e-7, "row_norms %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_scale_columns(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes) * 3; s++) {
		const int64_t n = shapes[s / 3][0], c = shapes[s / 3][1];
		const int how = (int)(s % 3); /* write, add, in place */
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1),
				*m = tensor_normal(ts, DT_F32, c, 1), *norm = positive(ts, c),
				*y = how == 2   ? x
				     : how == 1 ? tensor_normal(ts, t, n * c, 1)
						: tensor_nan(ts, t, n * c);
		double *want = copy(y);
		for (int64_t i = 0; i < n * c; i++)
			want[i] = (how == 1 ? y->v[i] : 0) + x->v[i] * m->v[i % c] / norm->v[i % c];
		LAUNCH(ts, K_scale_columns, t, AB(y), AB(x), AB(m), AB(norm), AI(n), AI(c),
		       AI(how == 1));
		tensor_check(ts, y, want, rel_of(t), 1e-6, "scale_columns %lldx%lld how %d",
			     (long long)n, (long long)c, how);
		mem_free(want);
	}
}

static void case_dot_columns(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *dy = tensor_normal(ts, t, n * c, 1),
				*z = tensor_normal(ts, t, n * c, 1), *norm = positive(ts, c),
				*dm = tensor_normal(ts, DT_F32, c, 1);
		double *want = copy(dm);
		for (int64_t i = 0; i < n * c; i++)
			want[i % c] += dy->v[i] * z->v[i] / norm->v[i % c];
		LAUNCH(ts, K_dot_columns, t, AB(dm), AB(dy), AB(z), AB(norm), AI(n), AI(c));
		tensor_check(ts, dm, want, 2e-5, 4e-5, "dot_columns %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_rmsnorm_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes) * 4; s++) {
		const int64_t n = shapes[s / 4][0], c = shapes[s / 4][1];
		const double plus = s % 2 ? 1 : 0;
		struct tensor64 *add = s & 2 ? tensor_normal(ts, t, n * c, 1) : NULL;
		struct tensor64 *x = tensor_normal(ts, t, n * c, 3),
				*w = tensor_normal(ts, DT_F32, c, 1), *y = tensor_nan(ts, t, n * c),
				*rstd = tensor_nan(ts, DT_F32, n);
		if (add)
			LAUNCH(ts, K_rmsnorm_fwd, t, AB(y), AB(rstd), AB(x), AB(w), AB(add), AI(n),
			       AI(c), AF(1e-5), AF(plus));
		else
			LAUNCH(ts, K_rmsnorm_fwd, t, AB(y), AB(rstd), AB(x), AB(w), ANONE, AI(n),
			       AI(c), AF(1e-5), AF(plus));
		double *want = nans(n * c), *wrstd = nans(n);
		ref_rmsnorm_fwd(want, wrstd, x->v, w->v, n, c, 1e-5, plus);
		ts->floor = add ? 8 : 0; /* what is added may take away most of it */
		for (int64_t i = 0; add && i < n * c; i++)
			want[i] += add->v[i];
		tensor_check(ts, rstd, wrstd, 2e-6, 0, "rmsnorm_fwd rstd %lldx%lld", (long long)n,
			     (long long)c);
		tensor_check(ts, y, want, 2 * rel_of(t), add ? 2 * rel_of(t) : 4 * small_of(t),
			     "rmsnorm_fwd %lldx%lld", (long long)n, (long long)c);
		mem_free(want);
		mem_free(wrstd);
	}
}

static void case_rmsnorm_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(shapes) * 4; s++) {
		const int64_t n = shapes[s / 4][0], c = shapes[s / 4][1];
		const bool acc = s & 1, dw = s & 2;
		const double plus = s % 3 ? 0 : 1;
		struct tensor64 *x = tensor_normal(ts, t, n * c, 3),
				*w = tensor_normal(ts, DT_F32, c, 1),
				*dy = tensor_normal(ts, t, n * c, 1);
		struct tensor64 *dx = acc ? tensor_normal(ts, t, n * c, 1)
					  : tensor_nan(ts, t, n * c),
				*db = tensor_normal(ts, DT_F32, c, 1),
				*rstd = tensor_const(ts, DT_F32, n, 0);
		double *wrstd = nans(n), *y = nans(n * c), *want = copy(dx), *wantw = copy(db);
		ref_rmsnorm_fwd(y, wrstd, x->v, w->v, n, c, 1e-5, plus);
		for (int64_t i = 0; i < n; i++) {
			float r = (float)wrstd[i];
			struct err e = { 0 };
			assert_int_equal(dev_upload(DEV_REF(rstd->b, (size_t)i * 4), &r, 4, &e), 0);
		}
		if (dw)
			LAUNCH(ts, K_rmsnorm_bwd, t, AB(dx), AB(db), AB(dy), AB(x), AB(w), AB(rstd),
			       AI(n), AI(c), AI(acc), AF(plus));
		else
			LAUNCH(ts, K_rmsnorm_bwd, t, AB(dx), ANONE, AB(dy), AB(x), AB(w), AB(rstd),
			       AI(n), AI(c), AI(acc), AF(plus));
		if (!acc)
			memset(want, 0, (size_t)(n * c) * sizeof *want);
		ref_rmsnorm_bwd(want, dw ? wantw : NULL, dy->v, x->v, w->v, wrstd, n, c, plus);
		tensor_check(ts, dx, want, rel_of(t), abs_of(t), "rmsnorm_bwd dx %lldx%lld acc %d",
			     (long long)n, (long long)c, acc);
		tensor_check(ts, db, wantw, 1e-5, 1e-5, "rmsnorm_bwd dw %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(wrstd);
		mem_free(y);
		mem_free(want);
		mem_free(wantw);
	}
}

static void case_rope(struct tensors *ts, enum dtype t)
{
	/* n, h, d, ld, rotated, near, tables */
	static const int64_t dims[][7] = {
		{ 1, 1, 2, 2, 0, 0, 0 },        { 5, 3, 6, 18, 0, 0, 0 },
		{ 33, 9, 64, 9 * 64, 0, 0, 0 }, { 7, 2, 128, 300, 0, 0, 0 },
		{ 11, 1, 80, 83, 0, 0, 0 },     { 9, 3, 96, 300, 72, 0, 2 },
		{ 6, 2, 20, 40, 10, 1, 0 },     { 5, 2, 64, 128, 64, 1, 3 },
		{ 4, 1, 256, 256, 64, 0, 0 }
	};
	for (size_t s = 0; s < ARRAY_LEN(dims) * 2; s++) {
		const int64_t *q = dims[s / 2], n = q[0], h = q[1], d = q[2], ld = q[3], rot = q[4],
			      tables = q[6] ? q[6] : 1, dir = s & 1 ? -1 : 1;
		struct tensor64 *x = tensor_normal(ts, t, n * ld, 1),
				*pos = tensor_below(ts, n, s & 1 ? 200000 : 2048),
				*freq = tensor_normal(ts, DT_F32, (rot ? rot : d) / 2 * tables,
						      0.3),
				*table = q[6] ? tensor_below(ts, n, (int32_t)tables) : NULL;
		LAUNCH(ts, K_rope, t, AB(x), AB(pos), AB(freq), AI(n), AI(h), AI(d), AI(ld),
		       AI(dir), AF(1.25), AI(rot), AI(q[5]), table ? AB(table) : ANONE);
		double *want = copy(x);
		ref_rope(want, pos->i, freq->v, n, h, d, ld, dir, 1.25, rot, q[5],
			 table ? table->i : NULL);
		tensor_check(ts, x, want, rel_of(t), t == DT_F32 ? 1e-6 : 0x1p-10,
			     "rope %lldx%lldx%lld of %lld", (long long)n, (long long)h,
			     (long long)d, (long long)rot);
		mem_free(want);
	}
}

static void case_swiglu_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1; /* what is below float16's smallest number may become 0 */
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *g = tensor_normal(ts, t, n, s & 1 ? 50 : 2),
				*u = tensor_normal(ts, t, n, 1), *y = tensor_nan(ts, t, n);
		LAUNCH(ts, K_swiglu_fwd, t, AB(y), AB(g), AB(u), AI(n), AI(n), AI(n));
		double *want = nans(n);
		ref_swiglu_fwd(want, g->v, u->v, n);
		tensor_check(ts, y, want, rel_of(t), fmax(small_of(t), 1e-30), "swiglu_fwd %lld",
			     (long long)n);
		mem_free(want);
	}
}

static void case_swiglu_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++)
		for (int alias = 0; alias < 3; alias++) {
			const int64_t n = case_lengths[s];
			struct tensor64 *dy = tensor_normal(ts, t, n, 1),
					*g = tensor_normal(ts, t, n, 2),
					*u = tensor_normal(ts, t, n, 1);
			struct tensor64 *dg = alias == 1   ? dy
					      : alias == 2 ? g
							   : tensor_nan(ts, t, n),
					*du = alias ? u : tensor_nan(ts, t, n);
			double *wg = nans(n), *wu = nans(n);
			ref_swiglu_bwd(wg, wu, dy->v, g->v, u->v, n);
			LAUNCH(ts, K_swiglu_bwd, t, AB(dg), AB(du), AB(dy), AB(g), AB(u), AI(n),
			       AI(n), AI(n));
			tensor_check(ts, dg, wg, rel_of(t), 1e-6, "swiglu_bwd dgate %lld alias %d",
				     (long long)n, alias);
			tensor_check(ts, du, wu, rel_of(t), 1e-6, "swiglu_bwd dup %lld alias %d",
				     (long long)n, alias);
			mem_free(wg);
			mem_free(wu);
		}
}

static void case_geglu_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1; /* what is below float16's smallest number may become 0 */
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *g = tensor_normal(ts, t, n, s & 1 ? 50 : 2),
				*u = tensor_normal(ts, t, n, 1), *y = tensor_nan(ts, t, n);
		LAUNCH(ts, K_geglu_fwd, t, AB(y), AB(g), AB(u), AI(n), AI(n), AI(n));
		double *want = nans(n);
		ref_geglu_fwd(want, g->v, u->v, n);
		tensor_check(ts, y, want, rel_of(t), fmax(small_of(t), 1e-30), "geglu_fwd %lld",
			     (long long)n);
		mem_free(want);
	}
}

static void case_geglu_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1; /* the derivative of a gate far below 0 may be 0 in float64 */
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++)
		for (int alias = 0; alias < 3; alias++) {
			const int64_t n = case_lengths[s];
			struct tensor64 *dy = tensor_normal(ts, t, n, 1),
					*g = tensor_normal(ts, t, n, 2),
					*u = tensor_normal(ts, t, n, 1);
			struct tensor64 *dg = alias == 1   ? dy
					      : alias == 2 ? g
							   : tensor_nan(ts, t, n),
					*du = alias ? u : tensor_nan(ts, t, n);
			double *wg = nans(n), *wu = nans(n);
			ref_geglu_bwd(wg, wu, dy->v, g->v, u->v, n);
			LAUNCH(ts, K_geglu_bwd, t, AB(dg), AB(du), AB(dy), AB(g), AB(u), AI(n),
			       AI(n), AI(n));
			tensor_check(ts, dg, wg, rel_of(t), 1e-6, "geglu_bwd dgate %lld alias %d",
				     (long long)n, alias);
			tensor_check(ts, du, wu, rel_of(t), 1e-6, "geglu_bwd dup %lld alias %d",
				     (long long)n, alias);
			mem_free(wg);
			mem_free(wu);
		}
}

static void case_axpby(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 2; s++) {
		const int64_t n = case_lengths[s / 2];
		const double alpha = 0.75, beta = s & 1 ? -1.5 : 0;
		struct tensor64 *x = tensor_normal(ts, t, n, 1),
				*y = s & 1 ? tensor_normal(ts, t, n, 1) : tensor_nan(ts, t, n);
		double *want = copy(y);
		for (int64_t i = 0; i < n; i++)
			want[i] = alpha * x->v[i] + (s & 1 ? beta * y->v[i] : 0);
		LAUNCH(ts, K_axpby, t, AB(y), AB(x), AI(n), AF(alpha), AF(beta));
		tensor_check(ts, y, want, rel_of(t), 1e-7, "axpby %lld beta %g", (long long)n,
			     beta);
		mem_free(want);
	}
}

static void case_cast(struct tensors *ts, enum dtype t)
{
	static const enum dtype all[] = { DT_F32, DT_BF16, DT_F16, DT_F64 };
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++)
		for (size_t p = 0; p < ARRAY_LEN(all) * ARRAY_LEN(all); p++) {
			const enum dtype from = all[p / ARRAY_LEN(all)],
					 to = all[p % ARRAY_LEN(all)];
			const int64_t n = case_lengths[s];
			struct tensor64 *x = tensor_normal(ts, from, n, 100),
					*y = tensor_nan(ts, to, n);
			double *want = nans(n);
			float *f = mem_alloc((size_t)n * 4);
			void *raw = mem_alloc((size_t)n * 8);
			for (int64_t i = 0; i < n; i++)
				f[i] = (float)x->v[i];
			dtype_from_f32(to, f, raw, (uint64_t)n);
			dtype_to_f32(to, raw, f, (uint64_t)n);
			for (int64_t i = 0; i < n; i++)
				want[i] = (double)f[i];
			LAUNCH(ts, K_cast, DT_F32, AB(y), AB(x), AI(n), AI(to), AI(from));
			tensor_check(ts, y, want, 0, 0, "cast %s to %s %lld", dtype_name(from),
				     dtype_name(to), (long long)n);
			mem_free(f);
			mem_free(raw);
			mem_free(want);
		}
}

/* Places in the first half of a global batch of 1,000 rows. */
static struct tensor64 *places(struct tensors *ts, int64_t n)
{
	return tensor_below(ts, 2 * n, 500);
}

static void case_dropout(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 3; s++) {
		const int64_t n = case_lengths[s / 3];
		const int how = (int)(s % 3); /* write, add, in place */
		const float p = s % 2 ? 0.1f : 0.0f;
		struct tensor64 *x = tensor_normal(ts, t, n, 1),
				*y = how == 2   ? x
				     : how == 1 ? tensor_normal(ts, t, n, 1)
						: tensor_nan(ts, t, n);
		double *want = how == 1 ? copy(y) : mem_array((size_t)n, sizeof *want);
		ref_dropout(want, x->v, NULL, 1, n, p, 0x123456789abcdefull + s);
		LAUNCH(ts, K_dropout, t, AB(y), AB(x), ANONE, AI(1), AI(n), AI(how == 1), AF(p),
		       AU(0x123456789abcdefull + s));
		tensor_check(ts, y, want, rel_of(t), 1e-7, "dropout %lld how %d", (long long)n,
			     how);
		mem_free(want);
	}
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *x = tensor_normal(ts, t, n * c, 1), *at = places(ts, n),
				*y = s % 2 ? tensor_normal(ts, t, n * c, 1)
					   : tensor_nan(ts, t, n * c);
		double *want = s % 2 ? copy(y) : mem_array((size_t)(n * c), sizeof *want);
		ref_dropout(want, x->v, at->i, n, c, 0.3f, 77 + s);
		LAUNCH(ts, K_dropout, t, AB(y), AB(x), AB(at), AI(n), AI(c), AI(s % 2), AF(0.3f),
		       AU(77 + s));
		tensor_check(ts, y, want, rel_of(t), 1e-7, "dropout by place %lldx%lld",
			     (long long)n, (long long)c);
		mem_free(want);
	}
}

static void case_noise(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < 2 * ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s / 2][0], c = shapes[s / 2][1];
		struct tensor64 *y = tensor_normal(ts, t, n * c, 1),
				*a = tensor_normal(ts, DT_F32, n, 1),
				*at = s % 2 ? places(ts, n) : NULL;
		double *want = copy(y);
		ref_noise(want, a->v, at ? at->i : NULL, n, c, 0x123456789abcdefull + s);
		LAUNCH(ts, K_noise, t, AB(y), AB(a), at ? AB(at) : ANONE, AI(n), AI(c),
		       AU(0x123456789abcdefull + s));
		tensor_check(ts, y, want, rel_of(t), 1e-6, "noise %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_xent(struct tensors *ts, enum dtype t)
{
	static const int64_t dims[][3] = {
		{ 1, 1, 1 }, { 5, 2, 2 }, { 13, 101, 104 }, { 9, 3001, 3001 }, { 3, 152064, 152065 }
	};
	const int64_t ratio = 4 / dtype_size(t);
	for (size_t s = 0; s < ARRAY_LEN(dims) * 3; s++) {
		const int64_t n = dims[s / 3][0], v = dims[s / 3][1], ldl = dims[s / 3][2];
		const int how = (int)(s % 3); /* own buffer, in place, no gradient */
		const int64_t ldd = how == 1 ? ldl * ratio : v + 1;
		struct tensor64 *l = tensor_normal(ts, DT_F32, n * ldl, 4),
				*loss = tensor_nan(ts, DT_F32, n),
				*lab = tensor_below(ts, n, (int32_t)v);
		struct tensor64 *d = tensor_nan(ts, t, n * ldd);
		struct tensor64 *hit = tensor_nan(ts, DT_F32, n),
				*weight = tensor_normal(ts, DT_F32, n, 1);
		const bool weighs = s / 3 % 2;
		const double cap = s % 4 == 3 ? 6 : s % 4 == 2 ? 30 : 0;
		double *wl = nans(n), *wd = nans(n * ldd), *wh = nans(n), *got;
		if (n > 2) {
			struct err e = { 0 };
			lab->i[1] = -100;
			assert_int_equal(dev_upload(DEV_REF(lab->b, 4), &lab->i[1], 4, &e), 0);
		}
		if (n > 2) { /* the label of the last row is the likeliest */
			float top = 100;
			struct err e = { 0 };
			const int64_t at = (n - 1) * ldl + lab->i[n - 1];
			l->v[at] = (double)top;
			assert_int_equal(dev_upload(DEV_REF(l->b, (size_t)at * 4), &top, 4, &e), 0);
		}
		ref_xent(wl, wd, l->v, lab->i, n, weighs ? weight->v : NULL, wh, v, ldl, ldd, 0.125,
			 cap);
		if (how == 1)
			d->b = (dev_free(d->b), l->b), l->b = NULL;
		union dev_arg in = { .b = { how == 1 ? d->b : l->b, 0 } };
		LAUNCH(ts, K_xent, t, AB(loss), how == 2 ? ANONE : AB(d), in, AB(lab), AB(hit),
		       weighs ? AB(weight) : ANONE, AI(n), AI(v), AI(ldl), AI(ldd), AF(0.125),
		       AF(cap));
		ts->floor = 10;
		tensor_check(ts, loss, wl, 1e-5, 1e-6, "xent loss %lldx%lld how %d", (long long)n,
			     (long long)v, how);
		tensor_check(ts, hit, wh, 0, 0, "xent hits %lldx%lld", (long long)n, (long long)v);
		ts->floor = 0.125;
		if (how == 1) { /* between the rows lie values left over from the logits */
			got = tensor_fetch(ts, d);
			for (int64_t i = 0; i < n * ldd; i++)
				wd[i] = i % ldd < v ? wd[i] : got[i];
			mem_free(got);
		}
		if (how != 2)
			tensor_check(ts, d, wd, rel_of(t), 1e-6, "xent dlogits %lldx%lld how %d",
				     (long long)n, (long long)v, how);
		mem_free(wl);
		mem_free(wd);
		mem_free(wh);
		tensors_release(ts);
	}
}

static void case_colsum(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *dy = tensor_normal(ts, t, n * c, 1),
				*db = tensor_normal(ts, DT_F32, c, 1);
		double *want = copy(db);
		ref_colsum(want, dy->v, n, c);
		LAUNCH(ts, K_colsum, t, AB(db), AB(dy), AI(n), AI(c));
		tensor_check(ts, db, want, 2e-6, 2e-6, "colsum %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_addbias(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *y = tensor_normal(ts, t, n * c, 1),
				*b = tensor_normal(ts, DT_F32, c, 1);
		double *want = copy(y);
		for (int64_t i = 0; i < n * c; i++)
			want[i] += b->v[i % c];
		LAUNCH(ts, K_addbias, t, AB(y), AB(b), AI(n), AI(c));
		tensor_check(ts, y, want, rel_of(t), 1e-7, "addbias %lldx%lld", (long long)n,
			     (long long)c);
		mem_free(want);
	}
}

static void case_nf4_dequant(struct tensors *ts, enum dtype t)
{
	/* in, rows, row0, nr, col0, nc, pad */
	static const int64_t dims[][7] = {
		{ 1, 1, 0, 1, 0, 1, 0 },         { 64, 3, 0, 3, 0, 64, 0 },
		{ 576, 40, 3, 32, 0, 576, 0 },   { 576, 40, 3, 32, 64, 128, 5 },
		{ 100, 37, 1, 35, 0, 100, 0 },   { 97, 33, 2, 20, 13, 71, 3 },
		{ 1536, 48, 5, 40, 511, 700, 1 }
	};
	for (size_t s = 0; s < ARRAY_LEN(dims) * 2; s++) {
		const int64_t *d = dims[s / 2], in = d[0], rows = d[1], nr = d[3], nc = d[5],
			      ldd = nc + d[6], block = 64, n = in * rows,
			      blocks = (n + block - 1) / block;
		struct tensor64 *packed = tensor_bytes(ts, (n + 1) / 2),
				*code = tensor_normal(ts, DT_F32, 16, 0.5),
				*dst = tensor_nan(ts, t, nr * ldd);
		struct tensor64 *absmax, *code2 = NULL, *absmax2 = NULL;
		double *scale = nans(blocks), *want = nans(nr * ldd);
		const float offset = 0.3f;
		if (s & 1) {
			absmax = tensor_bytes(ts, blocks);
			code2 = tensor_normal(ts, DT_F32, 256, 0.5);
			absmax2 = tensor_normal(ts, DT_F32, (blocks + 255) / 256, 1);
			for (int64_t b = 0; b < blocks; b++)
				scale[b] = code2->v[absmax->u[b]] * absmax2->v[b / 256] +
					   (double)offset;
			LAUNCH(ts, K_nf4_dequant, t, AB(dst), AB(packed), AB(absmax), AB(code),
			       AB(code2), AB(absmax2), AI(in), AI(d[2]), AI(nr), AI(d[4]), AI(nc),
			       AI(ldd), AI(block), AF(offset));
		} else {
			absmax = tensor_normal(ts, DT_F32, blocks, 1);
			for (int64_t b = 0; b < blocks; b++)
				scale[b] = absmax->v[b];
			LAUNCH(ts, K_nf4_dequant, t, AB(dst), AB(packed), AB(absmax), AB(code),
			       ANONE, ANONE, AI(in), AI(d[2]), AI(nr), AI(d[4]), AI(nc), AI(ldd),
			       AI(block), AF(0));
		}
		ref_nf4(want, packed->u, scale, code->v, in, d[2], nr, d[4], nc, ldd, block);
		tensor_check(ts, dst, want, rel_of(t), 1e-6, "nf4_dequant %lldx%lld",
			     (long long)rows, (long long)in);
		mem_free(scale);
		mem_free(want);
	}
}

static void (*const cases[K_COUNT])(struct tensors *, enum dtype) = {
#define KERNEL(name, sig) [K_##name] = case_##name,
#include "dev/kernel.def"
#undef KERNEL
};

/* Kernels whose arguments are all float32, or name their dtypes themselves. */
static bool one_dtype(enum dev_kernel k) { return gpu_program_of(k, DT_BF16) == DT_F32; }

/* A driver that limits the passes of a loop, as Mesa's llvmpipe does, gets no launch with more:
 * sizes just below the limit come out right, sizes above it are refused. */
static int loops_are_counted(struct dev *d, int64_t most)
{
	enum { ROWS = 600000, AT_ONCE = GPU_LANES / 16 }; /* rows that a group adds in one pass */
	static const struct attn_shape longest = { 8, 1, 16, 0, 0, { 700 }, { 700 }, 0, 0 };
	struct err e = { 0 };
	struct tensors ts;
	char spec[DEV_SPEC];
	dev_spec(d, spec);
	tensors_init(&ts, d, seed);
	struct tensor64 *dy = tensor_normal(&ts, DT_F32, ROWS, 1),
			*db = tensor_const(&ts, DT_F32, 1, 0);
	union dev_arg a[] = { AB(db), AB(dy), AI(ROWS), AI(1) };
	assert_int_equal(dev_launch(d, K_colsum, DT_F32, a, &e), ERR_UNSUPPORTED);
	if (!strstr(e.msg, spec) || !strstr(e.msg, "colsum at this size makes up to"))
		fail_msg("%s", e.msg);
	double want = 0;
	a[2].i = AT_ONCE * (most - 10);
	for (int64_t r = 0; r < a[2].i; r++)
		want += dy->v[r];
	ts.floor = sqrt((double)ROWS);
	tensor_launch(&ts, K_colsum, DT_F32, a);
	tensor_check(&ts, db, &want, 1e-5, 1e-5, "colsum of the most rows");
	tensors_release(&ts);
	attn_bwd_of(&ts, DT_F32, &longest, 0);
	print_message("%-18s loops end after %lld passes: %s\n", spec, (long long)most,
		      ts.failed ? "FAIL" : "ok, kept to");
	return ts.failed;
}

static int run_device(const char *spec, const char *label)
{
	struct err e = { 0 };
	struct dev *d;
	int failed = 0;
	if (dev_open(spec, &d, &e) < 0) {
		print_error("FAIL %s: %s\n", label, e.msg);
		return 1;
	}
	const int64_t most = !strcmp(d->be->name, "opencl")
				     ? ((const struct opencl *)d->priv)->passes
				     : INT64_MAX;
	for (int k = 0; k < K_COUNT; k++) {
		print_message("%-18s %-13s", label, dev_kernel_name((enum dev_kernel)k));
		for (enum dtype t = DT_F32; t <= DT_F16; t++) {
			if (one_dtype((enum dev_kernel)k) && t != DT_F32)
				continue;
			if (!dev_has(d, (enum dev_kernel)k, t)) {
				print_message("  %s unsupported", dtype_name(t));
				continue;
			}
			/* llvmpipe takes seconds to compile these, and the dtypes differ by two
			 * conversions */
			if (most < INT64_MAX && t != DT_F32 && (k == K_attn_fwd || k == K_attn_bwd))
				continue;
			struct tensors ts;
			tensors_init(&ts, d, rng_fold(rng_fold(seed, (uint64_t)k), t));
			cases[k](&ts, t);
			tensors_release(&ts);
			print_message("  %s %s (error %.2f of tolerance, %s)", dtype_name(t),
				      ts.failed ? "FAIL" : "ok", ts.worst,
				      ts.worst > 0 ? ts.worst_of : "exact");
			failed += ts.failed;
		}
		print_message("\n");
	}
	if (most < INT64_MAX)
		failed += loops_are_counted(d, most);
	assert_int_equal(d->mem_used, 0);
	dev_close(d);
	return failed;
}

/* With each instruction set that this processor has. */
static int run_cpu(void)
{
	static const char *const isa[] = { "base", "v3", "v4", "v4bf16" };
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(isa); i++) {
		struct err e = { 0 };
		struct dev *d;
		char label[32];
		setenv("HS_CPU_ISA", isa[i], 1);
		assert_int_equal(dev_open("cpu", &d, &e), 0);
		const bool has = !strcmp(((const struct cpu *)d->priv)->isa->name, isa[i]);
		dev_close(d);
		snprintf(label, sizeof label, "cpu %s", isa[i]);
		if (has)
			failed += run_device("cpu", label);
		else
			print_message("%-18s not on this processor\n", label);
	}
	unsetenv("HS_CPU_ISA");
	return failed;
}

static void test_kernels(void **state)
{
	(void)state;
	int failed = 0;
	print_message("seed %llu (set HS_SEED to repeat)\n", (unsigned long long)seed);
	for (size_t b = 0; backends[b]; b++) {
		struct err e = { 0 };
		const char *only = getenv("HS_BACKENDS"); /* "cuda hip": those */
		if (!strcmp(backends[b]->name, "null") ||
		    (only && !strstr(only, backends[b]->name)))
			continue;
		int n = backends[b]->count(&e);
		if (n <= 0) {
			print_message("%-18s skipped (%s)\n", backends[b]->name,
				      n < 0 ? e.msg : "no such device");
			continue;
		}
		if (!strcmp(backends[b]->name, "cpu")) {
			failed += run_cpu();
			continue;
		}
		for (int i = 0; i < n; i++) {
			char spec[32];
			snprintf(spec, sizeof spec, "%s:%d", backends[b]->name, i);
			failed += run_device(spec, spec);
		}
	}
	assert_int_equal(failed, 0);
}

/* One and two threads give the same bits. A device that has run the shapes once allocates no memory
 * for them again. */
static void test_threads_and_warmth(void **state)
{
	(void)state;
	uint64_t hash[2][K_COUNT][2];
	const int most = omp_get_max_threads();
	for (int n = 0; n < 2; n++) {
		struct err e = { 0 };
		struct dev *d;
		omp_set_num_threads(n + 1);
		assert_int_equal(dev_open("cpu", &d, &e), 0);
		for (int round = 0; round <= n; round++)
			for (int k = 0; k < K_COUNT; k++)
				for (enum dtype t = DT_F32; t <= DT_BF16; t++) {
					struct tensors ts;
					tensors_init(&ts, d, rng_fold(seed, (uint64_t)k));
					cases[k](&ts, t);
					tensors_release(&ts);
					hash[n][k][t] = ts.hash;
					if (round && ts.launch_allocs)
						fail_msg("%s takes memory when it is warm",
							 dev_kernel_name((enum dev_kernel)k));
					if (hash[n][k][t] != hash[0][k][t])
						fail_msg("%s %s: other bits with %d threads than "
							 "with one",
							 dev_kernel_name((enum dev_kernel)k),
							 dtype_name(t), n + 1);
				}
		dev_close(d);
	}
	omp_set_num_threads(most);
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const char *s = getenv("HS_SEED");
	seed = s ? strtoull(s, NULL, 10) : (uint64_t)clock_wall();
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_kernels),
					    cmocka_unit_test(test_threads_and_warmth) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
