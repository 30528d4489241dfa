/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_nn.c - cases of the kernels of people's own models: activations, layer norm, squared
 * error. */
#include "support/kernel_case.h"
#include "support/ref64.h"

#include "base/err.h"

static const int64_t shapes[][2] = { { 1, 1 }, { 3, 17 }, { 37, 64 }, { 131, 97 }, { 7, 2053 } };

static void case_act(struct tensors *ts, enum dtype t, bool back)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 6; s++) {
		const int64_t n = case_lengths[s / 6], kind = (int64_t)(s % 6);
		const bool acc = s & 1;
		struct tensor64 *x = tensor_normal(ts, t, n, 2), *dy = tensor_normal(ts, t, n, 1),
				*y = back && acc ? tensor_normal(ts, t, n, 1)
						 : tensor_nan(ts, t, n);
		double *want = back && acc ? copy(y) : nans(n);
		if (n == 31) /* a NaN does not end as a number */
			tensor_put(x, 7, (double)NAN);
		if (back) {
			if (!acc)
				memset(want, 0, (size_t)n * sizeof *want);
			ref_act_bwd(want, dy->v, x->v, n, kind);
			LAUNCH(ts, K_act_bwd, t, AB(y), AB(dy), AB(x), AI(n), AI(kind), AI(acc));
		} else {
			ref_act_fwd(want, x->v, n, kind);
			LAUNCH(ts, K_act_fwd, t, AB(y), AB(x), AI(n), AI(kind));
		}
		tensor_check(ts, y, want, rel_of(t), abs_of(t), "act_%s %lld kind %d",
			     back ? "bwd" : "fwd", (long long)n, (int)kind);
		mem_free(want);
	}
}

/* Where x is far below 0, GELU is a small difference of numbers near 1 times x. */
void case_act_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	case_act(ts, t, false);
}
void case_act_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	case_act(ts, t, true);
}

void case_layernorm_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		const int64_t n = shapes[s][0], c = shapes[s][1];
		struct tensor64 *x = tensor_normal(ts, t, n * c, 3),
				*w = tensor_normal(ts, DT_F32, c, 1),
				*b = tensor_normal(ts, DT_F32, c, 1), *y = tensor_nan(ts, t, n * c),
				*mean = tensor_nan(ts, DT_F32, n),
				*rstd = tensor_nan(ts, DT_F32, n);
		double *want = nans(n * c), *wmean = nans(n), *wrstd = nans(n);
		LAUNCH(ts, K_layernorm_fwd, t, AB(y), AB(mean), AB(rstd), AB(x), AB(w), AB(b),
		       AI(n), AI(c), AF(1e-5));
		ref_layernorm_fwd(want, wmean, wrstd, x->v, w->v, b->v, n, c, 1e-5);
		tensor_check(ts, mean, wmean, 2e-6, 2e-6, "layernorm_fwd mean %lldx%lld",
			     (long long)n, (long long)c);
		tensor_check(ts, rstd, wrstd, 4e-6, 0, "layernorm_fwd rstd %lldx%lld", (long long)n,
			     (long long)c);
		tensor_check(ts, y, want, rel_of(t), abs_of(t), "layernorm_fwd %lldx%lld",
			     (long long)n, (long long)c);
		mem_free(want);
		mem_free(wmean);
		mem_free(wrstd);
	}
}

static struct tensor64 *given(struct tensors *ts, const double *v, int64_t n)
{
	struct tensor64 *x = tensor_const(ts, DT_F32, n, 0);
	struct err e = { 0 };
	for (int64_t i = 0; i < n; i++) {
		const float f = (float)v[i];
		assert_int_equal(dev_upload(DEV_REF(x->b, (size_t)i * 4), &f, 4, &e), 0);
	}
	return x;
}

void case_layernorm_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(shapes) * 4; s++) {
		const int64_t n = shapes[s / 4][0], c = shapes[s / 4][1];
		const bool acc = s & 1, dp = s & 2;
		struct tensor64 *x = tensor_normal(ts, t, n * c, 3),
				*w = tensor_normal(ts, DT_F32, c, 1),
				*dy = tensor_normal(ts, t, n * c, 1),
				*dx = acc ? tensor_normal(ts, t, n * c, 1)
					  : tensor_nan(ts, t, n * c),
				*dw = tensor_normal(ts, DT_F32, c, 1),
				*db = tensor_normal(ts, DT_F32, c, 1);
		double *y = nans(n * c), *mean = nans(n), *rstd = nans(n), *want = copy(dx),
		       *wantw = copy(dw), *wantb = copy(db);
		ref_layernorm_fwd(y, mean, rstd, x->v, w->v, w->v, n, c, 1e-2);
		struct tensor64 *m = given(ts, mean, n), *r = given(ts, rstd, n);
		if (!acc)
			memset(want, 0, (size_t)(n * c) * sizeof *want);
		ref_layernorm_bwd(want, wantw, wantb, dy->v, x->v, w->v, mean, rstd, n, c);
		if (dp)
			LAUNCH(ts, K_layernorm_bwd, t, AB(dx), AB(dw), AB(db), AB(dy), AB(x), AB(w),
			       AB(m), AB(r), AI(n), AI(c), AI(acc));
		else
			LAUNCH(ts, K_layernorm_bwd, t, AB(dx), ANONE, ANONE, AB(dy), AB(x), AB(w),
			       AB(m), AB(r), AI(n), AI(c), AI(acc));
		tensor_check(ts, dx, want, 2 * rel_of(t), 2 * abs_of(t),
			     "layernorm_bwd dx %lldx%lld acc %d", (long long)n, (long long)c, acc);
		if (dp) {
			tensor_check(ts, dw, wantw, 1e-5, 1e-5, "layernorm_bwd dw %lldx%lld",
				     (long long)n, (long long)c);
			tensor_check(ts, db, wantb, 1e-5, 1e-5, "layernorm_bwd db %lldx%lld",
				     (long long)n, (long long)c);
		}
		mem_free(y);
		mem_free(mean);
		mem_free(rstd);
		mem_free(want);
		mem_free(wantw);
		mem_free(wantb);
	}
}

void case_mse(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(shapes) * 2; s++) {
		const int64_t n = shapes[s / 2][0], w = shapes[s / 2][1];
		const bool learn = s & 1;
		struct tensor64 *x = tensor_normal(ts, t, n * w, 1),
				*target = tensor_normal(ts, DT_F32, n * w, 1),
				*loss = tensor_nan(ts, DT_F32, n), *dx = tensor_nan(ts, t, n * w);
		double *want = nans(n), *wantx = nans(n * w);
		ref_mse(want, wantx, x->v, target->v, n, w, 0.5);
		if (learn)
			LAUNCH(ts, K_mse, t, AB(loss), AB(dx), AB(x), AB(target), AI(n), AI(w),
			       AF(0.5));
		else
			LAUNCH(ts, K_mse, t, AB(loss), ANONE, AB(x), AB(target), AI(n), AI(w),
			       AF(0.5));
		tensor_check(ts, loss, want, 4e-6, 1e-7, "mse %lldx%lld", (long long)n,
			     (long long)w);
		if (learn)
			tensor_check(ts, dx, wantx, rel_of(t), abs_of(t), "mse dx %lldx%lld",
				     (long long)n, (long long)w);
		mem_free(want);
		mem_free(wantx);
	}
}
