/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_tiles.c - attention and products on the matrix units of each kind of card, against
 * float64. The
 * stand-in for a card runs the kernels' text for it with each instruction as the vendor's document
 * defines it (drivers/fake_tiles.h), so fragments with a wrong layout give wrong numbers here.
 * HS_TILES names cards ("sm_75 intel8"): those only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "dev/gpu.h"
#include "support/cards.h"
#include "support/kernel_case.h"
#include "support/ref64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct card {
	const char *name, *spec, *variable, *value;
	enum dtype from; /* the first of bfloat16 and float16 that has matrix units */
} cards[] = {
	{ "sm_90", "cuda:0", "FAKE_RT", "arch=90 volta noblas", DT_BF16 },
	{ "sm_86", "cuda:0", "FAKE_RT", "arch=86 volta noblas", DT_BF16 },
	{ "sm_75", "cuda:0", "FAKE_RT", "arch=75 volta noblas", DT_F16 },
	{ "sm_70", "cuda:0", "FAKE_RT", "arch=70 volta noblas", DT_F16 },
	{ "gfx908", "hip:0", "FAKE_HIP", "gfx908", DT_BF16 },
	{ "gfx90a", "hip:0", "FAKE_HIP", "gfx90a:sramecc+", DT_BF16 },
	{ "gfx1100", "hip:0", "FAKE_HIP", "gfx1100", DT_BF16 },
	{ "gfx1200", "hip:0", "FAKE_HIP", "gfx1200", DT_BF16 },
	{ "intel8", "cuda:0", "FAKE_TILES", "intel8", DT_BF16 },
	{ "intel16", "cuda:0", "FAKE_TILES", "intel16", DT_BF16 },
};

/* C (m,n) f32 or in t, of A and B in t, by the portable kernel: each transpose, edges of tiles,
 * rows that do not lie in pieces of 16 bytes, every shape of tiles. */
static void case_products(struct tensors *ts, enum dtype t)
{
	static const int64_t sizes[][3] = { { 131, 72, 100 }, { 33, 144, 64 }, { 16, 40, 7 } };
	for (int i = 0; i < 3 * 8; i++) {
		struct err e = { 0 };
		const int64_t *s = sizes[i / 8], pad = i & 4 ? 3 : 0;
		struct dev_gemm g = { .m = s[0],
				      .n = s[1],
				      .k = s[2],
				      .ta = i & 1,
				      .tb = i & 2,
				      .lda = (i & 1 ? s[0] : s[2]) + pad,
				      .ldb = (i & 2 ? s[2] : s[1]) + pad,
				      .ldc = s[1] + pad,
				      .ab_dtype = t,
				      .c_dtype = i & 4 ? t : DT_F32,
				      .alpha = 0.5f,
				      .beta = i & 4 ? 1 : 0 };
		struct tensor64 *a = tensor_normal(ts, t, (g.ta ? g.k : g.m) * g.lda, 1),
				*b = tensor_normal(ts, t, (g.tb ? g.n : g.k) * g.ldb, 1);
		for (int shape = 0; shape < GPU_SHAPES; shape++) {
			struct tensor64 *c = tensor_normal(ts, g.c_dtype, g.m * g.ldc, 1),
					*d = tensor_normal(ts, g.c_dtype, g.m * g.ldc, 1);
			double *want = copy(c);
			const bool apart = shape % 2; /* what is added is in D */
			char digit[2] = { (char)('0' + shape), 0 };
			setenv("HS_GEMM_SHAPE", digit, 1);
			g.a = DEV_REF(a->b, 0);
			g.b = DEV_REF(b->b, 0);
			g.c = DEV_REF(c->b, 0);
			g.d = apart ? DEV_REF(d->b, 0) : DEV_NONE;
			for (int64_t k = 0; k < g.m && apart; k++)
				memcpy(want + k * g.ldc, d->v + k * g.ldc,
				       (size_t)g.n * sizeof *want);
			if (dev_gemm(ts->dev, &g, &e) < 0)
				fail_msg("%s", e.msg);
			ref_gemm(want, a->v, b->v, g.m, g.n, g.k, g.ta, g.tb, g.lda, g.ldb, g.ldc,
				 0.5, (double)g.beta);
			ts->floor = sqrt((double)g.k);
			tensor_check(ts, c, want, rel_of(g.c_dtype), 4e-6, "product %d in shape %d",
				     i, shape);
			mem_free(want);
		}
		tensors_release(ts);
	}
	unsetenv("HS_GEMM_SHAPE");
}

static int run(const struct card *c)
{
	struct err e = { 0 };
	struct dev *d;
	int failed = 0;
	setenv("FAKE_RT", "noblas", 1);
	setenv(c->variable, c->value, 1);
	if (dev_open(c->spec, &d, &e) < 0) {
		print_error("FAIL %s: %s\n", c->name, e.msg);
		return 1;
	}
	for (enum dtype t = c->from; t <= DT_F16; t++)
		for (int back = 0; back < 3; back++) {
			static const char *const names[] = { "attn_fwd", "attn_bwd", "products" };
			static void (*const run_case[])(struct tensors *, enum dtype) = {
				case_attn_fwd, case_attn_bwd, case_products
			};
			struct tensors ts;
			tensors_init(&ts, d, rng_fold(1, t));
			run_case[back](&ts, t);
			tensors_release(&ts);
			print_message("%-8s %s %-8s %s (error %.2f of tolerance, %s)\n", c->name,
				      names[back], dtype_name(t), ts.failed ? "FAIL" : "ok",
				      ts.worst, ts.worst_of);
			failed += ts.failed;
		}
	dev_close(d);
	unsetenv(c->variable);
	unsetenv("FAKE_RT");
	return failed;
}

static void every_card(void **state)
{
	const char *only = getenv("HS_TILES");
	int failed = 0;
	(void)state;
	for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
		if (!only || strstr(only, cards[i].name))
			failed += run(&cards[i]);
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_card) };
	if (!fake_cards("fake_rt.so", true))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
