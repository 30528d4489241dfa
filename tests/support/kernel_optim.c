/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_optim.c - the cases of the optimizers' kernels for tests/test_dev_kernels.c, and of the
 * gradient norm. */
#include "support/kernel_case.h"

#include "base/err.h"
#include "support/ref64.h"

void case_sqnorm(struct tensors *ts, enum dtype t)
{
	static const int64_t ns[] = { 1, 4095, 4096, 4097, 50021 };
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(ns) * 2; s++) {
		const int64_t n = ns[s / 2], m = (n + 4095) / 4096;
		struct tensor64 *x = tensor_normal(ts, DT_F32, n, 2),
				*out = tensor_nan(ts, DT_F32, m);
		double *want = mem_array((size_t)m, sizeof *want);
		if (s & 1) { /* a NaN affects only the sum that it is in */
			float bad = NAN;
			struct err e = { 0 };
			assert_int_equal(
				dev_upload(DEV_REF(x->b, (size_t)(n / 2) * 4), &bad, 4, &e), 0);
			x->v[n / 2] = (double)NAN;
		}
		for (int64_t i = 0; i < n; i++)
			want[i / 4096] += x->v[i] * x->v[i];
		LAUNCH(ts, K_sqnorm, DT_F32, AB(out), AB(x), AI(n));
		tensor_check(ts, out, want, 1e-5, 0, "sqnorm %lld", (long long)n);
		mem_free(want);
	}
}

void case_adamw(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *p = tensor_normal(ts, DT_F32, n, 1),
				*m = tensor_normal(ts, DT_F32, n, 0.1),
				*v = tensor_normal(ts, DT_F32, n, 0.1),
				*g = tensor_normal(ts, DT_F32, n, 1);
		for (int64_t i = 0; i < n; i++) {
			float a = (float)fabs(v->v[i]);
			struct err e = { 0 };
			v->v[i] = (double)a;
			assert_int_equal(dev_upload(DEV_REF(v->b, (size_t)i * 4), &a, 4, &e), 0);
		}
		double *wp = copy(p), *wm = copy(m), *wv = copy(v);
		const float lr = 1e-2f, b1 = 0.9f, b2 = 0.99f, eps = 1e-8f, wd = 0.1f, bc1 = 0.19f,
			    bc2 = 0.0199f, gs = 0.5f;
		ref_adamw(wp, wm, wv, g->v, n, (double)lr, (double)b1, (double)b2, (double)eps,
			  (double)wd, (double)bc1, (double)bc2, (double)gs);
		LAUNCH(ts, K_adamw, DT_F32, AB(p), AB(m), AB(v), AB(g), AI(n), AF(lr), AF(b1),
		       AF(b2), AF(eps), AF(wd), AF(bc1), AF(bc2), AF(gs));
		tensor_check(ts, m, wm, 1e-5, 1e-6, "adamw m %lld", (long long)n);
		tensor_check(ts, v, wv, 1e-5, 1e-6, "adamw v %lld", (long long)n);
		tensor_check(ts, p, wp, 1e-5, 1e-6, "adamw p %lld", (long long)n);
		mem_free(wp);
		mem_free(wm);
		mem_free(wv);
	}
}

void case_sgd(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 2; s++) {
		const int64_t n = case_lengths[s / 2];
		struct tensor64 *p = tensor_normal(ts, DT_F32, n, 1),
				*m = tensor_normal(ts, DT_F32, n, 1),
				*g = tensor_normal(ts, DT_F32, n, 1);
		double *wp = copy(p), *wm = copy(m);
		const float lr = 0.1f, mu = 0.9f, wd = 0.01f, gs = 0.5f;
		ref_sgd(wp, s & 1 ? wm : NULL, g->v, n, (double)lr, (double)mu, (double)wd,
			(double)gs);
		LAUNCH(ts, K_sgd, DT_F32, AB(p), s & 1 ? AB(m) : ANONE, AB(g), AI(n), AF(lr),
		       AF(mu), AF(wd), AF(gs));
		tensor_check(ts, p, wp, 1e-5, 1e-6, "sgd p %lld", (long long)n);
		tensor_check(ts, m, wm, 1e-5, 1e-6, "sgd mom %lld", (long long)n);
		mem_free(wp);
		mem_free(wm);
	}
}

/* Whether the codes and block maxima on the device are those of x: the maximum within rounding, and
 * each code's value as near to its number as the nearest one, but for the rounding of the number.
 * A first moment (with a sign) is a sum whose terms may cancel, and they are rounded as well. */
static void check_codes(struct tensors *ts, const struct tensor64 *codes,
			const struct tensor64 *maxima, const double *x, bool with_sign)
{
	double *most = mem_array((size_t)maxima->n, 8);
	uint8_t *code = mem_array((size_t)codes->n, 1);
	struct err e = { 0 };
	assert_true(most && code);
	assert_int_equal(dev_download(code, DEV_REF(codes->b, 0), (size_t)codes->n, &e), 0);
	for (int64_t b = 0; b < maxima->n; b++) {
		most[b] = 0;
		for (int64_t i = b * 256; i < (b + 1) * 256 && i < codes->n; i++)
			most[b] = fmax(most[b], fabs(x[i]));
	}
	tensor_check(ts, maxima, most, 1e-5, 0, "block maxima of %lld", (long long)codes->n);
	for (int64_t i = 0; i < codes->n; i++) {
		const double top = most[i / 256], v = top > 0 ? x[i] / top : 0;
		double best = INFINITY, got = ref_dynamic8(with_sign, code[i]);
		for (int k = 0; k < 256; k++)
			best = fmin(best, fabs(ref_dynamic8(with_sign, (uint8_t)k) - v));
		if (!(fabs(got - v) <= best + 4e-6 * fabs(v) + (with_sign ? 2e-7 : 0))) {
			print_error("code %d of %g: %g, best is %g away\n", code[i], v, got, best);
			ts->failed++;
			break;
		}
	}
	mem_free(most);
	mem_free(code);
}

/* Moments in 8 bits: both tables, codes of random moments, blocks of zeros, a last block that is
 * not full. A code is right when no other is nearer than rounding lets it seem. */
void case_adamw8(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s], blocks = (n + 255) / 256;
		struct tensor64 *p = tensor_normal(ts, DT_F32, n, 1),
				*g = tensor_normal(ts, DT_F32, n, 1),
				*mmax = tensor_const(ts, DT_F32, blocks, 0.25),
				*vmax = tensor_const(ts, DT_F32, blocks, s & 1 ? 0 : 0.125),
				*mq = tensor_bytes(ts, n), *vq = tensor_bytes(ts, n);
		double *wp = copy(p), *m = mem_array((size_t)n, 8), *v = mem_array((size_t)n, 8);
		assert_true(m && v);
		const float lr = 1e-2f, b1 = 0.9f, b2 = 0.99f, eps = 1e-8f, wd = 0.1f, bc1 = 0.19f,
			    bc2 = 0.0199f, gs = 0.5f;
		for (int64_t i = 0; i < n; i++) {
			m[i] = ref_dynamic8(true, mq->u[i]) * mmax->v[i / 256];
			v[i] = ref_dynamic8(false, vq->u[i]) * vmax->v[i / 256];
		}
		ref_adamw(wp, m, v, g->v, n, (double)lr, (double)b1, (double)b2, (double)eps,
			  (double)wd, (double)bc1, (double)bc2, (double)gs);
		LAUNCH(ts, K_adamw8, DT_F32, AB(p), AB(mq), AB(vq), AB(mmax), AB(vmax), AB(g),
		       AI(n), AF(lr), AF(b1), AF(b2), AF(eps), AF(wd), AF(bc1), AF(bc2), AF(gs));
		tensor_check(ts, p, wp, 1e-5, 1e-6, "adamw8 p %lld", (long long)n);
		check_codes(ts, mq, mmax, m, true);
		check_codes(ts, vq, vmax, v, false);
		mem_free(wp);
		mem_free(m);
		mem_free(v);
	}
}

void case_lion(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *p = tensor_normal(ts, DT_F32, n, 1),
				*m = tensor_normal(ts, DT_F32, n, 1),
				*g = tensor_normal(ts, DT_F32, n, 1);
		double *wp = copy(p), *wm = copy(m);
		/* none of these sums is so near to 0 that rounding decides its sign */
		const float lr = 0.1f, b1 = 0.75f, b2 = 0.5f, wd = 0.01f, gs = 0.5f;
		ref_lion(wp, wm, g->v, n, (double)lr, (double)b1, (double)b2, (double)wd,
			 (double)gs);
		LAUNCH(ts, K_lion, DT_F32, AB(p), AB(m), AB(g), AI(n), AF(lr), AF(b1), AF(b2),
		       AF(wd), AF(gs));
		tensor_check(ts, p, wp, 1e-5, 1e-6, "lion p %lld", (long long)n);
		tensor_check(ts, m, wm, 1e-5, 1e-6, "lion m %lld", (long long)n);
		mem_free(wp);
		mem_free(wm);
	}
}

static const int64_t factors[][2] = { { 1, 1 },  { 1, 300 },  { 300, 1 },
				      { 5, 33 }, { 129, 67 }, { 257, 128 } };

void case_factor_rows(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(factors); s++) {
		const int64_t r = factors[s][0], c = factors[s][1];
		struct tensor64 *g = tensor_normal(ts, DT_F32, r * c, 1),
				*row = tensor_const(ts, DT_F32, r, 0.5);
		double *want = copy(row);
		for (int64_t i = 0; i < r; i++) {
			double sum = 0;
			for (int64_t j = 0; j < c; j++)
				sum += 0.25 * g->v[i * c + j] * g->v[i * c + j] + 1e-3;
			want[i] = 0.75 * want[i] + 0.25 * sum / (double)c;
		}
		LAUNCH(ts, K_factor_rows, DT_F32, AB(row), AB(g), AI(r), AI(c), AF(0.75), AF(1e-3),
		       AF(0.5));
		tensor_check(ts, row, want, 1e-5, 1e-6, "factor_rows %lld x %lld", (long long)r,
			     (long long)c);
		mem_free(want);
	}
}

void case_factor_cols(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(factors); s++) {
		const int64_t r = factors[s][0], c = factors[s][1];
		struct tensor64 *g = tensor_normal(ts, DT_F32, r * c, 1),
				*col = tensor_const(ts, DT_F32, c, 0.5);
		double *want = copy(col);
		for (int64_t j = 0; j < c; j++) {
			double sum = 0;
			for (int64_t i = 0; i < r; i++)
				sum += 0.25 * g->v[i * c + j] * g->v[i * c + j] + 1e-3;
			want[j] = 0.75 * want[j] + 0.25 * sum / (double)r;
		}
		LAUNCH(ts, K_factor_cols, DT_F32, AB(col), AB(g), AI(r), AI(c), AF(0.75), AF(1e-3),
		       AF(0.5));
		tensor_check(ts, col, want, 1e-5, 1e-6, "factor_cols %lld x %lld", (long long)r,
			     (long long)c);
		mem_free(want);
	}
}

void case_factor_scale(struct tensors *ts, enum dtype t)
{
	(void)t;
	for (size_t s = 0; s < ARRAY_LEN(factors) * 2; s++) {
		const int64_t r = factors[s / 2][0], c = factors[s / 2][1];
		struct tensor64 *g = tensor_normal(ts, DT_F32, r * c, 1),
				*row = tensor_const(ts, DT_F32, r, 0.7),
				*col = tensor_const(ts, DT_F32, c, 0.3);
		double *want = copy(g);
		for (int64_t i = 0; i < r * c; i++)
			want[i] *=
				0.5 / sqrt(row->v[i / c] / 0.2) / (s & 1 ? sqrt(col->v[i % c]) : 1);
		LAUNCH(ts, K_factor_scale, DT_F32, AB(g), AB(row), s & 1 ? AB(col) : ANONE, AI(r),
		       AI(c), AF(0.2), AF(0.5));
		tensor_check(ts, g, want, 1e-5, 1e-6, "factor_scale %lld x %lld", (long long)r,
			     (long long)c);
		mem_free(want);
	}
}
