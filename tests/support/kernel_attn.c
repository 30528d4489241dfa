/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_attn.c - the cases of attention for tests/test_dev_kernels.c: lengths around the sizes of
 * blocks, grouped heads, windows, padded rows, queries at the end of a longer run of keys. */
#include "support/kernel_case.h"

#include "base/err.h"
#include "dev/dev_attn.h"
#include "dev/gpu.h"
#include "support/ref64.h"

static const struct attn_shape attn_shapes[] = {
	{ 1, 1, 1, 0, 0, { 1 }, { 1 }, 0, 0 },
	{ 2, 1, 8, 0, 3, { 5, 1, 3 }, { 5, 1, 3 }, 0, 0 },
	{ 9, 3, 64, 0, 0, { 67 }, { 67 }, 0, 0 },
	{ 9, 3, 64, 0, 0, { 128, 64 }, { 128, 64 }, 0, 0 },
	{ 3, 3, 64, 0, 5, { 200, 1, 31 }, { 200, 1, 31 }, 0, 0 },
	{ 4, 1, 128, 0, 0, { 131 }, { 131 }, 0, 0 },
	{ 8, 2, 128, 0, 7, { 96, 33 }, { 96, 33 }, 0, 0 },
	{ 4, 2, 80, 0, 1, { 70 }, { 70 }, 0, 0 },
	{ 4, 2, 96, 0, 8, { 70, 33 }, { 70, 33 }, 0, 0 },
	{ 3, 1, 64, 17, 0, { 150 }, { 150 }, 0, 0 },
	{ 2, 2, 128, 64, 0, { 150, 64 }, { 150, 64 }, 0, 0 },
	{ 2, 1, 17, 1, 0, { 37 }, { 37 }, 0, 0 },
	{ 6, 2, 32, 0, 2, { 257 }, { 257 }, 0, 0 },
	{ 4, 2, 64, 0, 1, { 97, 3 }, { 97, 3 }, 2.5, 0 },
	{ 4, 2, 256, 33, 0, { 90 }, { 90 }, 50, 0 },
	{ 4, 1, 256, 0, 0, { 49, 3, 32 }, { 49, 3, 32 }, 0, 0 },
	{ 3, 1, 200, 20, 3, { 1, 70 }, { 1, 70 }, 0, 0 },
	{ 4, 2, 512, 0, 0, { 41, 3 }, { 41, 3 }, 0, 0 },
	{ 3, 1, 390, 11, 5, { 1, 35 }, { 1, 35 }, 20, 0 },
	/* gradients below the normal numbers of float16 */
	{ 2, 1, 64, 0, 0, { 67 }, { 67 }, 0, 0x1p-15 },
	/* forward only: queries at the end of a longer run of keys */
	{ 9, 3, 64, 0, 0, { 1 }, { 300 }, 0, 0 },
	{ 8, 1, 128, 0, 3, { 1, 1, 2 }, { 77, 512, 2 }, 0, 0 },
	{ 4, 2, 64, 50, 0, { 1, 33 }, { 130, 130 }, 0, 0 },
	{ 2, 1, 40, 0, 0, { 7 }, { 19 }, 0, 0 },
	{ 4, 2, 64, 50, 0, { 1, 3 }, { 130, 60 }, 1.5, 0 },
	{ 4, 2, 64, 0, 0, { 1, 9 }, { 130, 60 }, 1.5, 0 },
	{ 4, 1, 512, 0, 3, { 1, 9 }, { 33, 20 }, 0, 0 },
};

static bool same_lengths(const struct attn_shape *a) { return !memcmp(a->lq, a->lk, sizeof a->lq); }

static struct ref_attn attn_of(const struct attn_shape *a, int32_t qs[5], int32_t ks[5])
{
	struct ref_attn r = { .qs = qs,
			      .ks = ks,
			      .h = a->h,
			      .g = a->g,
			      .d = a->d,
			      .window = a->window,
			      .scale = (double)(float)(1 / sqrt((double)a->d)),
			      .cap = a->cap };
	qs[0] = ks[0] = 0;
	while (r.s < 4 && a->lq[r.s]) {
		qs[r.s + 1] = qs[r.s] + a->lq[r.s];
		ks[r.s + 1] = ks[r.s] + a->lk[r.s];
		r.s++;
	}
	r.nq = qs[r.s];
	r.nk = ks[r.s];
	r.ldo = r.h * r.d + a->pad;
	r.ldq = r.h * r.d + 2 * a->pad;
	r.ldk = r.g * r.d + 3 * a->pad;
	r.ldv = r.g * r.d + a->pad;
	return r;
}

/* Probabilities and their gradients are rounded to T inside the kernel: an error of half a unit
 * each. */
static double attn_abs(enum dtype t) { return t == DT_F32 ? 1e-5 : t == DT_BF16 ? 1e-2 : 2e-3; }

/* A launch of attention in pieces, by the hand of gpu_piece(). */
static void in_pieces(struct tensors *ts, enum dev_kernel k, enum dtype t, const union dev_arg *a,
		      int64_t pieces)
{
	for (int64_t p = 0; p < pieces; p++) {
		union dev_arg args[GPU_ARGS];
		struct gpu_step steps[GPU_STEPS];
		struct err e = { 0 };
		if (gpu_piece(k, t, a, p, pieces, args, steps, &e) < 1)
			fail_msg("piece %d of %d: %s", (int)p, (int)pieces, e.msg);
		tensor_launch(ts, k, t, args);
	}
}

void case_attn_fwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(attn_shapes); s++) {
		int32_t qs[5], ks[5];
		struct ref_attn r = attn_of(&attn_shapes[s], qs, ks);
		struct tensor64 *q = tensor_normal(ts, t, r.nq * r.ldq, 1.5),
				*k = tensor_normal(ts, t, r.nk * r.ldk, 1.5),
				*v = tensor_normal(ts, t, r.nk * r.ldv, 1),
				*o = tensor_nan(ts, t, r.nq * r.ldo),
				*lse = tensor_nan(ts, DT_F32, r.h * r.nq),
				*tq = tensor_i32(ts, qs, r.s + 1),
				*tk = tensor_i32(ts, ks, r.s + 1);
		double *wo = nans(r.nq * r.ldo), *wl = nans(r.h * r.nq);
		ref_attn_fwd(wo, wl, q->v, k->v, v->v, &r);
		/* with lse and without it, at once and in pieces */
		for (int run = 0; run < (r.g > 1 ? 3 : 2); run++) {
			const union dev_arg a[] = { AB(o),        run == 1 ? ANONE : AB(lse),
						    AB(q),        AB(k),
						    AB(v),        AB(tq),
						    AB(tk),       AI(r.nq),
						    AI(r.s),      AI(r.h),
						    AI(r.g),      AI(r.d),
						    AI(r.ldo),    AI(r.ldq),
						    AI(r.ldk),    AI(r.ldv),
						    AI(r.window), AF(r.scale),
						    AF(r.cap) };
			in_pieces(ts, K_attn_fwd, t, a, run < 2 ? 1 : r.g > 2 ? 2 : r.g);
			tensor_check(ts, o, wo, rel_of(t), attn_abs(t) / 2, "attn_fwd o #%zu", s);
			tensor_check(ts, lse, wl, 1e-5, 1e-5, "attn_fwd lse #%zu", s);
			o = tensor_nan(ts, t, r.nq * r.ldo);
			if (run)
				lse = tensor_nan(ts, DT_F32, r.h * r.nq);
		}
		mem_free(wo);
		mem_free(wl);
		tensors_release(ts);
	}
}

void attn_bwd_of(struct tensors *ts, enum dtype t, const struct attn_shape *shape, size_t s)
{
	int32_t qs[5], ks[5];
	struct ref_attn r = attn_of(shape, qs, ks);
	const double small = shape->small > 0 ? shape->small : 1,
		     /* dS, too, has no more than the steps of the smallest numbers */
		near = attn_abs(t) + (small < 1 ? 16 * small_of(t) / small : 0);
	ts->floor = small;
	const int64_t n = r.nq;
	struct tensor64 *q = tensor_normal(ts, t, n * r.ldq, 1.5),
			*k = tensor_normal(ts, t, n * r.ldk, 1.5),
			*v = tensor_normal(ts, t, n * r.ldv, 1),
			*dout = tensor_normal(ts, t, n * r.ldo, small),
			*o = tensor_nan(ts, t, n * r.ldo), *lse = tensor_nan(ts, DT_F32, r.h * n),
			*tq = tensor_i32(ts, qs, r.s + 1);
	LAUNCH(ts, K_attn_fwd, t, AB(o), AB(lse), AB(q), AB(k), AB(v), AB(tq), AB(tq), AI(n),
	       AI(r.s), AI(r.h), AI(r.g), AI(r.d), AI(r.ldo), AI(r.ldq), AI(r.ldk), AI(r.ldv),
	       AI(r.window), AF(r.scale), AF(r.cap));
	/* backward gets the device's own output: its rounding matters more than all errors of
	 * backward (docs/kernels.md) */
	double *wq = nans(n * r.ldq), *wk = nans(n * r.ldk), *wv = nans(n * r.ldv),
	       *wo = tensor_fetch(ts, o);
	ref_attn_bwd(wq, wk, wv, dout->v, q->v, k->v, v->v, wo, &r);
	mem_free(wo);
	/* cards: dk and dv in one part, then in several; for every second pair of shape and dtype
	 * the several twice, with equal bits */
	double *first[2] = { NULL, NULL };
	const int runs = !ts->dev->units ? 1 : (s + t) % 2 ? 2 : 3;
	for (int run = 0; run < runs; run++) {
		const int64_t parts = run ? 2 + (int64_t)s % 4 : 1;
		const struct dev_attn shape_of = { n, r.s, r.h, r.g, r.d, r.window };
		struct tensor64 *delta = tensor_nan(ts, DT_F32,
						    (int64_t)dev_attn_bytes(&shape_of, parts) / 4),
				*dq = tensor_nan(ts, t, n * r.ldq),
				*dk = tensor_nan(ts, t, n * r.ldk),
				*dv = tensor_nan(ts, t, n * r.ldv), *both[2] = { dk, dv };
		const union dev_arg a[] = { AB(dq),       AB(dk),      AB(dv),    AB(dout),
					    AB(q),        AB(k),       AB(v),     AB(o),
					    AB(lse),      AB(delta),   AB(tq),    AI(n),
					    AI(r.s),      AI(r.h),     AI(r.g),   AI(r.d),
					    AI(r.ldo),    AI(r.ldq),   AI(r.ldk), AI(r.ldv),
					    AI(r.window), AF(r.scale), AF(r.cap), AI(parts) };
		/* the repetition in pieces */
		in_pieces(ts, K_attn_bwd, t, a, run < 2 ? 1 : r.g > 2 ? 2 : r.g);
		tensor_check(ts, dq, wq, rel_of(t), near, "attn_bwd dq #%zu", s);
		tensor_check(ts, dk, wk, rel_of(t), near, "attn_bwd dk #%zu, %d parts", s,
			     (int)parts);
		tensor_check(ts, dv, wv, rel_of(t), near, "attn_bwd dv #%zu, %d parts", s,
			     (int)parts);
		for (int i = 0; i < 2 && run; i++) {
			double *now = tensor_fetch(ts, both[i]);
			if (run == 1) {
				first[i] = now;
				continue;
			}
			if (memcmp(first[i], now, (size_t)(n * (i ? r.ldv : r.ldk)) * sizeof *now))
				fail_msg("attn_bwd #%zu, %d parts: other bits when repeated", s,
					 (int)parts);
			mem_free(now);
		}
	}
	mem_free(first[0]);
	mem_free(first[1]);
	mem_free(wq);
	mem_free(wk);
	mem_free(wv);
	tensors_release(ts);
}

void case_attn_bwd(struct tensors *ts, enum dtype t)
{
	for (size_t s = 0; s < ARRAY_LEN(attn_shapes); s++)
		if (same_lengths(&attn_shapes[s]))
			attn_bwd_of(ts, t, &attn_shapes[s], s);
}
