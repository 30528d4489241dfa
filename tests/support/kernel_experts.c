/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_experts.c - the cases of a mixture of experts for tests/test_dev_kernels.c. */
#include "support/kernel_case.h"

#include "base/err.h"
#include "support/ref64.h"

#include <stdlib.h>

static const struct {
	int64_t n, e, k;
} routes[] = {
	{ 1, 1, 1 }, { 7, 4, 1 }, { 37, 8, 2 }, { 13, 128, 8 }, { 5, 1024, 13 }, { 3, 9, 9 }
};

/* Sixteenths, which every dtype holds: two logits are equal or well apart. */
static struct tensor64 *sixteenths(struct tensors *ts, enum dtype t, int64_t n)
{
	struct tensor64 *x = tensor_normal(ts, t, n, 2);
	struct err e = { 0 };
	for (int64_t i = 0; i < n; i++) {
		const float v = (float)(round(fmax(-15, fmin(15, x->v[i])) * 16) / 16);
		uint32_t bytes = 0;
		dtype_from_f32(t, &v, &bytes, 1);
		x->v[i] = (double)v;
		assert_int_equal(dev_upload(DEV_REF(x->b, (size_t)i * dtype_size(t)), &bytes,
					    dtype_size(t), &e),
				 0);
	}
	return x;
}

/* What route_fwd gives, as route_bwd gets it. */
struct routed {
	struct tensor64 *p, *lse, *w, *chosen, *logits;
};

/* By softmax, or as GLM-4 has it; both with and without the sum. */
struct how {
	int64_t whole, sigmoid;
	double scale;
};
static const struct how hows[] = { { 0, 0, 1 }, { 1, 0, 1 }, { 0, 1, 1 }, { 1, 1, 2.5 } };

static void check_chosen(struct tensors *ts, const struct routed *r, const double *want)
{
	struct err e = { 0 };
	const size_t n = (size_t)r->chosen->n;
	int32_t *got = mem_array(n, sizeof *got);
	assert_int_equal(dev_download(got, DEV_REF(r->chosen->b, 0), n * sizeof *got, &e), 0);
	for (size_t i = 0; i < n; i++) {
		if (got[i] == (int32_t)want[i])
			continue;
		print_error("FAIL route_fwd: expert %zu is %d, want %g\n", i, got[i], want[i]);
		ts->failed = 1;
		break;
	}
	mem_free(got);
}

static struct routed route(struct tensors *ts, enum dtype t, size_t s, const struct how *h)
{
	const int64_t n = routes[s].n, x = routes[s].e, k = routes[s].k;
	/* whole numbers: sums with a probability are equal only where the probabilities are */
	struct tensor64 *logits = sixteenths(ts, t, n * x),
			*bias = h->sigmoid && h->whole ? tensor_normal(ts, DT_F32, x, 1) : NULL;
	struct err e = { 0 };
	for (int64_t i = 0; bias && i < x; i++) {
		const float v = (float)(int)(3 * bias->v[i]);
		bias->v[i] = (double)v;
		assert_int_equal(dev_upload(DEV_REF(bias->b, (size_t)i * 4), &v, 4, &e), 0);
	}
	struct routed r = { tensor_nan(ts, DT_F32, n * x), tensor_nan(ts, DT_F32, n),
			    tensor_nan(ts, DT_F32, n * k), tensor_below(ts, n * k, 1), logits };
	LAUNCH(ts, K_route_fwd, t, AB(r.p), AB(r.lse), AB(r.w), AB(r.chosen), AB(logits),
	       bias ? AB(bias) : ANONE, AI(n), AI(x), AI(k), AI(h->whole), AI(h->sigmoid),
	       AF((float)h->scale));
	double *p = nans(n * x), *lse = nans(n), *w = nans(n * k), *c = nans(n * k);
	ref_route_fwd(p, lse, w, c, logits->v, bias ? bias->v : NULL, n, x, k, h->whole, h->sigmoid,
		      h->scale);
	tensor_check(ts, r.p, p, 1e-5, 1e-30, "route_fwd p %lld of %lld", (long long)k,
		     (long long)x);
	tensor_check(ts, r.lse, lse, 1e-6, 1e-6, "route_fwd lse of %lld", (long long)x);
	tensor_check(ts, r.w, w, 2e-5, 1e-30, "route_fwd weight %lld of %lld", (long long)k,
		     (long long)x);
	check_chosen(ts, &r, c);
	memcpy(r.p->v, p, (size_t)(n * x) * sizeof *p);
	memcpy(r.lse->v, lse, (size_t)n * sizeof *p);
	memcpy(r.w->v, w, (size_t)(n * k) * sizeof *p);
	for (int64_t i = 0; i < n * k; i++)
		r.chosen->i[i] = (int32_t)c[i];
	mem_free(p);
	mem_free(lse);
	mem_free(w);
	mem_free(c);
	return r;
}

void case_route_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(routes); s++)
		for (size_t h = 0; h < ARRAY_LEN(hows); h++)
			route(ts, t, s, &hows[h]);
}

void case_route_bwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 0.25; /* of one expert with a weight of 1 all is 0 */
	for (size_t s = 0; s < ARRAY_LEN(routes) * 8; s++) {
		const int64_t n = routes[s / 8].n, x = routes[s / 8].e, k = routes[s / 8].k;
		const struct how *h = &hows[s % 4];
		struct routed r = route(ts, t, s / 8, h);
		struct tensor64 *dw = tensor_normal(ts, DT_F32, n * k, 1),
				*balance = s & 4 ? tensor_normal(ts, DT_F32, x, 1) : NULL,
				*dl = tensor_nan(ts, t, n * x);
		const float z = s & 4 ? 0.03f : 0;
		LAUNCH(ts, K_route_bwd, t, AB(dl), AB(dw), AB(r.p), AB(r.lse), AB(r.w),
		       AB(r.chosen), balance ? AB(balance) : ANONE, AB(r.logits), AI(n), AI(x),
		       AI(k), AI(h->whole), AI(h->sigmoid), AF((float)h->scale), AF(z));
		double *want = nans(n * x);
		ref_route_bwd(want, dw->v, r.p->v, r.lse->v, r.w->v, r.chosen->i,
			      balance ? balance->v : NULL, r.logits->v, n, x, k, h->whole,
			      h->sigmoid, h->scale, (double)z);
		tensor_check(ts, dl, want, rel_of(t), fmax(small_of(t), 4e-6),
			     "route_bwd %lld of %lld whole %d sigmoid %d", (long long)k,
			     (long long)x, (int)h->whole, (int)h->sigmoid);
		mem_free(want);
	}
}

static const struct {
	int64_t n, k, c;
} sums[] = { { 1, 1, 1 }, { 5, 2, 17 }, { 37, 8, 64 }, { 3, 4, 2053 }, { 131, 1, 97 } };

/* A permutation of [0, n). */
static struct tensor64 *places(struct tensors *ts, int64_t n)
{
	int32_t *v = mem_array((size_t)n, sizeof *v);
	struct tensor64 *r = tensor_below(ts, n, 1 << 30), *p;
	for (int64_t i = 0; i < n; i++)
		v[i] = (int32_t)i;
	for (int64_t i = n - 1; i > 0; i--) {
		const int64_t j = r->i[i] % (i + 1);
		const int32_t was = v[i];
		v[i] = v[j];
		v[j] = was;
	}
	p = tensor_i32(ts, v, n);
	mem_free(v);
	return p;
}

void case_combine_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(sums) * 4; s++) {
		const int64_t n = sums[s / 4].n, k = sums[s / 4].k, c = sums[s / 4].c, acc = s & 1;
		struct tensor64 *x = tensor_normal(ts, t, n * k * c, 1),
				*w = s & 2 ? tensor_normal(ts, DT_F32, n * k, 1) : NULL,
				*place = places(ts, n * k),
				*y = acc ? tensor_normal(ts, t, n * c, 1)
					 : tensor_nan(ts, t, n * c);
		double *want = acc ? copy(y) : mem_array((size_t)(n * c), sizeof *want);
		ref_combine_fwd(want, x->v, w ? w->v : NULL, place->i, n, k, c);
		LAUNCH(ts, K_combine_fwd, t, AB(y), AB(x), w ? AB(w) : ANONE, AB(place), AI(n),
		       AI(k), AI(c), AI(acc));
		tensor_check(ts, y, want, rel_of(t), fmax(small_of(t), 4e-6),
			     "combine_fwd %lldx%lldx%lld", (long long)n, (long long)k,
			     (long long)c);
		mem_free(want);
	}
}

void case_combine_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(sums); s++) {
		const int64_t n = sums[s].n, k = sums[s].k, c = sums[s].c;
		struct tensor64 *x = tensor_normal(ts, t, n * k * c, 1),
				*w = tensor_normal(ts, DT_F32, n * k, 1),
				*dy = tensor_normal(ts, t, n * c, 1), *place = places(ts, n * k),
				*dx = tensor_nan(ts, t, n * k * c),
				*dw = tensor_nan(ts, DT_F32, n * k);
		double *wx = nans(n * k * c), *ww = nans(n * k);
		ref_combine_bwd(wx, ww, dy->v, x->v, w->v, place->i, n, k, c);
		LAUNCH(ts, K_combine_bwd, t, AB(dx), AB(dw), AB(dy), AB(x), AB(w), AB(place), AI(n),
		       AI(k), AI(c));
		tensor_check(ts, dx, wx, rel_of(t), fmax(small_of(t), 1e-30),
			     "combine_bwd dx %lldx%lldx%lld", (long long)n, (long long)k,
			     (long long)c);
		tensor_check(ts, dw, ww, 2e-5, 2e-4, "combine_bwd dw %lldx%lldx%lld", (long long)n,
			     (long long)k, (long long)c);
		mem_free(wx);
		mem_free(ww);
	}
}

/* ---- gpt-oss ---- */

enum { ALPHA = 2, LIMIT = 3 }; /* a number no sample is near of counts as none */

/* No sample within a step of the limit, where the derivative jumps. */
static struct tensor64 *off_limit(struct tensors *ts, enum dtype t, int64_t n)
{
	struct tensor64 *x = tensor_normal(ts, t, n, 2);
	struct err e = { 0 };
	for (int64_t i = 0; i < n; i++) {
		if (fabs(fabs(x->v[i]) - LIMIT) > 0.05)
			continue;
		const float v = 1;
		uint32_t bytes = 0;
		dtype_from_f32(t, &v, &bytes, 1);
		x->v[i] = 1;
		assert_int_equal(dev_upload(DEV_REF(x->b, (size_t)i * dtype_size(t)), &bytes,
					    dtype_size(t), &e),
				 0);
	}
	return x;
}

void case_swiglu_oss_fwd(struct tensors *ts, enum dtype t)
{
	ts->floor = 1;
	for (size_t s = 0; s < ARRAY_LEN(case_lengths); s++) {
		const int64_t n = case_lengths[s];
		struct tensor64 *g = off_limit(ts, t, n), *u = off_limit(ts, t, n),
				*y = tensor_nan(ts, t, n);
		double *want = nans(n);
		LAUNCH(ts, K_swiglu_oss_fwd, t, AB(y), AB(g), AB(u), AI(n), AI(n), AI(n), AF(ALPHA),
		       AF(LIMIT));
		ref_swiglu_oss_fwd(want, g->v, u->v, n, ALPHA, LIMIT);
		tensor_check(ts, y, want, rel_of(t), 1e-6, "swiglu_oss_fwd %lld", (long long)n);
		mem_free(want);
	}
}

void case_swiglu_oss_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(case_lengths) * 3; s++) {
		const int64_t n = case_lengths[s / 3], alias = (int64_t)(s % 3);
		struct tensor64 *dy = tensor_normal(ts, t, n, 1), *g = off_limit(ts, t, n),
				*u = off_limit(ts, t, n);
		struct tensor64 *dg = alias == 1   ? dy
				      : alias == 2 ? g
						   : tensor_nan(ts, t, n),
				*du = alias ? u : tensor_nan(ts, t, n);
		double *wg = nans(n), *wu = nans(n);
		ref_swiglu_oss_bwd(wg, wu, dy->v, g->v, u->v, n, ALPHA, LIMIT);
		LAUNCH(ts, K_swiglu_oss_bwd, t, AB(dg), AB(du), AB(dy), AB(g), AB(u), AI(n), AI(n),
		       AI(n), AF(ALPHA), AF(LIMIT));
		tensor_check(ts, dg, wg, rel_of(t), 1e-5, "swiglu_oss_bwd dgate %lld",
			     (long long)n);
		tensor_check(ts, du, wu, rel_of(t), 1e-5, "swiglu_oss_bwd dup %lld", (long long)n);
		mem_free(wg);
		mem_free(wu);
	}
}

static const struct {
	int64_t n, h, d;
} heads[] = { { 1, 1, 2 }, { 7, 3, 16 }, { 61, 4, 64 }, { 33, 8, 17 } };

void case_sink_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(heads); s++) {
		const int64_t n = heads[s].n, h = heads[s].h, d = heads[s].d;
		struct tensor64 *o = tensor_normal(ts, t, n * h * d, 1),
				*lse = tensor_normal(ts, DT_F32, h * n, 3),
				*sink = tensor_normal(ts, DT_F32, h, 3);
		double *wo = copy(o), *wl = copy(lse);
		ref_sink_fwd(wo, wl, sink->v, n, h, d);
		LAUNCH(ts, K_sink_fwd, t, AB(o), AB(lse), AB(sink), AI(n), AI(h), AI(d));
		tensor_check(ts, o, wo, rel_of(t), fmax(small_of(t), 1e-30),
			     "sink_fwd %lldx%lldx%lld", (long long)n, (long long)h, (long long)d);
		tensor_check(ts, lse, wl, 2e-6, 2e-6, "sink_fwd lse %lldx%lld", (long long)n,
			     (long long)h);
		mem_free(wo);
		mem_free(wl);
	}
}

void case_sink_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(heads); s++) {
		const int64_t n = heads[s].n, h = heads[s].h, d = heads[s].d;
		struct tensor64 *o = tensor_normal(ts, t, n * h * d, 1),
				*dout = tensor_normal(ts, t, n * h * d, 1),
				*lse = tensor_normal(ts, DT_F32, h * n, 1),
				*sink = tensor_normal(ts, DT_F32, h, 1),
				*dsink = tensor_normal(ts, DT_F32, h, 1);
		double *want = copy(dsink);
		ref_sink_bwd(want, dout->v, o->v, lse->v, sink->v, n, h, d);
		LAUNCH(ts, K_sink_bwd, t, AB(dsink), AB(dout), AB(o), AB(lse), AB(sink), AI(n),
		       AI(h), AI(d));
		tensor_check(ts, dsink, want, 1e-4, 1e-3, "sink_bwd %lldx%lldx%lld", (long long)n,
			     (long long)h, (long long)d);
		mem_free(want);
	}
}
