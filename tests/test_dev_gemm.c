/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_gemm.c - matrix products of every backend that computes against float64: transposes,
 * dtypes, strides, odd and empty shapes, beta 0 over NaN, and that a warm product allocates nothing
 * and always gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dev/gpu_tune.h"
#include "dev/opencl.h"
#include "support/cards.h"
#include "support/ref64.h"
#include "support/tensors.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;
static const char narrow[] = "HS_TEST_NARROW"; /* set in the child of test_narrow_processor */

struct shape {
	int64_t m, n, k;
};

static const struct shape shapes[] = {
	{ 1, 1, 1 },      { 1, 37, 64 },    { 1, 576, 577 },   { 2, 19, 100 }, { 3, 64, 33 },
	{ 4, 130, 576 },  { 5, 7, 11 },     { 17, 1, 29 },     { 64, 64, 64 }, { 67, 16, 96 },
	{ 96, 67, 16 },   { 16, 96, 67 },   { 127, 131, 113 }, { 33, 300, 1 }, { 300, 200, 70 },
	{ 70, 128, 300 }, { 256, 64, 512 }, { 0, 3, 4 },       { 3, 0, 4 },    { 3, 5, 0 },
};

static struct dev_gemm gemm_of(const struct shape *s, int trans, int pad, enum dtype ab,
			       enum dtype c)
{
	struct dev_gemm g = { .m = s->m,
			      .n = s->n,
			      .k = s->k,
			      .ta = trans & 1,
			      .tb = trans & 2,
			      .ab_dtype = ab,
			      .c_dtype = c,
			      .alpha = 1 };
	g.lda = (g.ta ? g.m : g.k) + pad;
	g.ldb = (g.tb ? g.k : g.n) + 2 * pad;
	g.ldc = g.n + 3 * pad;
	return g;
}

static int64_t most(int64_t a) { return a > 0 ? a : 1; }

/* apart: what is added is not what was in C, which is NaN. */
static void one(struct tensors *ts, const struct shape *s, int trans, int pad, enum dtype ab,
		enum dtype ct, float alpha, float beta, bool apart)
{
	struct err e = { 0 };
	struct dev_gemm g = gemm_of(s, trans, pad, ab, ct);
	const int64_t na = most((g.ta ? g.k : g.m) * g.lda), nb = most((g.tb ? g.n : g.k) * g.ldb),
		      nc = most(g.m * g.ldc);
	struct tensor64 *a = tensor_normal(ts, ab, na, 1), *b = tensor_normal(ts, ab, nb, 1),
			*d = apart ? tensor_normal(ts, ct, nc, 1) : NULL,
			*c = beta != 0 && !apart ? tensor_normal(ts, ct, nc, 1)
						 : tensor_nan(ts, ct, nc);
	g.a = DEV_REF(a->b, 0);
	g.b = DEV_REF(b->b, 0);
	g.c = DEV_REF(c->b, 0);
	g.d = d ? DEV_REF(d->b, 0) : DEV_NONE;
	g.alpha = alpha;
	g.beta = beta;
	if (dev_gemm(ts->dev, &g, &e) < 0)
		fail_msg("%s", e.msg);
	double *want = mem_array((size_t)nc, sizeof *want);
	memcpy(want, c->v, (size_t)nc * sizeof *want);
	for (int64_t i = 0; d && i < g.m; i++)
		memcpy(want + i * g.ldc, d->v + i * g.ldc, (size_t)g.n * sizeof *want);
	ref_gemm(want, a->v, b->v, g.m, g.n, g.k, g.ta, g.tb, g.lda, g.ldb, g.ldc, (double)alpha,
		 (double)beta);
	ts->floor = sqrt((double)most(g.k));
	/* Sums of k products in float32; then one rounding to the dtype of C. Added one after the
	 * other they are off by 2.4e-8 k (standard deviation of a random walk): four times that. */
	const double rel = ct == DT_F32 ? 1e-5 : ct == DT_BF16 ? 0x1.1p-8 : 0x1.1p-11;
	const double off = 4e-6 + 1e-7 * ts->floor;
	tensor_check(ts, c, want, rel, off, "gemm %s%s %lldx%lldx%lld pad %d alpha %g beta %g%s",
		     g.ta ? "t" : "n", g.tb ? "t" : "n", (long long)g.m, (long long)g.n,
		     (long long)g.k, pad, (double)alpha, (double)beta, d ? ", of D" : "");
	mem_free(want);
	tensors_release(ts);
}

/* Sizes of real models, each run once: sums over a vocabulary of 49,152, rows of 152,064. */
static const struct shape real_sizes[] = { { 3, 17, 49152 }, { 2, 152064, 8 } };
/* A few rows of a large matrix, as experts have them (dev_cpu_gemm.c, is_flat). */
static const struct shape flat = { 19, 1031, 517 };

static bool computes(struct dev *d, enum dtype t) { return dev_has(d, K_swiglu_fwd, t); }

static int all(struct dev *d, const char *label)
{
	static const enum dtype pairs[][2] = { { DT_F32, DT_F32 },
					       { DT_BF16, DT_BF16 },
					       { DT_BF16, DT_F32 },
					       { DT_F16, DT_F16 },
					       { DT_F16, DT_F32 } };
	const int step = !strcmp(d->be->name, "cpu") ? 1 : strstr(label, "llvmpipe") ? 7 : 3;
	int failed = 0;
	for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
		print_message("%-10s %s to %s: ", label, dtype_name(pairs[p][0]),
			      dtype_name(pairs[p][1]));
		if (!computes(d, pairs[p][0])) {
			print_message("unsupported\n");
			continue;
		}
		struct tensors ts;
		tensors_init(&ts, d, rng_fold(seed, p));
		for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
			/* fewer combinations where the portable kernel runs on an emulated device:
			 * each flag is met both ways */
			for (int how = 0; how < 32; how += step)
				one(&ts, &shapes[s], how & 3, how & 4 ? 5 : 0, pairs[p][0],
				    pairs[p][1], how & 8 ? -0.5f : 1, how & 16 ? 1 : 0,
				    how & 16 && (how ^ how >> 1) & 1);
		/* the second pair of dtypes: a sum in parts must not be rounded to C's dtype in
		 * between */
		for (size_t s = 0; s < ARRAY_LEN(real_sizes) && p < 2; s++)
			one(&ts, &real_sizes[s], p ? 3 : 2, 0, pairs[p][0], pairs[p][1],
			    p ? -0.5f : 1, p ? 1 : 0, p > 0);
		if (step == 1)
			one(&ts, &flat, 2, 5, pairs[p][0], pairs[p][1], -0.5f, 0, false);
		print_message("%s (error %.2f of tolerance, %s)\n", ts.failed ? "FAIL" : "ok",
			      ts.worst, ts.worst_of);
		failed += ts.failed;
	}
	return failed;
}

static int on(const char *spec, const char *label)
{
	struct err e = { 0 };
	struct dev *d;
	if (dev_open(spec, &d, &e) < 0)
		fail_msg("%s", e.msg);
	int failed = all(d, label);
	dev_close(d);
	return failed;
}

/* OpenCL devices take products from CLBlast where it is: both that and the portable kernel. */
static int on_opencl(const char *spec)
{
	struct err e = { 0 };
	struct dev *d;
	struct dev_caps caps;
	char label[200];
	if (!getenv("HS_CLBLAST"))
		setenv("HS_CLBLAST", "1", 1); /* on processors, too */
	if (dev_open(spec, &d, &e) < 0 || dev_caps(d, &caps, &e) < 0)
		fail_msg("%s", e.msg);
	bool blas = strstr(caps.driver, "CLBlast") != NULL;
	dev_close(d);
	setenv("HS_CLBLAST", "0", 1);
	snprintf(label, sizeof label, "%s (%.8s)", spec, caps.name);
	int failed = on(spec, label);
	unsetenv("HS_CLBLAST");
	if (!blas) {
		print_message("%s with CLBlast: skipped (it is not installed, or turned off by "
			      "HS_CLBLAST)\n",
			      spec);
		return failed;
	}
	snprintf(label, sizeof label, "%s with CLBlast", spec);
	setenv("HS_CLBLAST", "1", 1);
	failed += on(spec, label);
	unsetenv("HS_CLBLAST");
	return failed;
}

static void test_products(void **state)
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
		if (n <= 0)
			print_message("%-10s skipped (%s)\n", backends[b]->name,
				      n < 0 ? e.msg : "no such device");
		for (int i = 0; i < n; i++) {
			char spec[32];
			snprintf(spec, sizeof spec, "%s:%d", backends[b]->name, i);
			failed += strcmp(backends[b]->name, "opencl") ? on(spec, spec)
								      : on_opencl(spec);
		}
	}
	assert_int_equal(failed, 0);
}

/* CLBlast counts elements in 32 bits: products beyond that are the portable kernel's. */
static void test_clblast_sizes(void **state)
{
	struct dev_buf any = { 0 };
	struct dev_gemm g = { .m = 131072,
			      .n = 14336,
			      .k = 4096,
			      .tb = true,
			      .a = { &any, 0 },
			      .b = { &any, 0 },
			      .c = { &any, 0 },
			      .lda = 4096,
			      .ldb = 4096,
			      .ldc = 14336,
			      .alpha = 1 };
	(void)state;
	assert_false(opencl_blas_does(&g)); /* its copies of all three hold 2.5e9 together */
	g.m = 65536;
	assert_true(opencl_blas_does(&g));
	g.b.off = (size_t)INT32_MAX * 4; /* a place behind as many */
	assert_false(opencl_blas_does(&g));
	g.b.off = 0;
	g.ldc = 65536; /* rows that lie far apart */
	assert_false(opencl_blas_does(&g));
	g.ldc = g.n;
	g.ab_dtype = DT_F16;
	assert_false(opencl_blas_does(&g));
}

/* The same products of the CPU by a library that has none of 16-bit numbers, as on processors
 * without AVX-512. */
static void test_narrow_processor(void **state)
{
	(void)state;
	int status = 0;
	fflush(NULL);
	const pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		setenv("DNNL_MAX_CPU_ISA", "AVX2", 1); /* oneDNN's own */
		setenv("HS_BACKENDS", "cpu", 1);
		setenv(narrow, "1", 1);
		dup2(2, 1); /* what it says is no result of this test */
		execl("/proc/self/exe", "test_dev_gemm", (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* A second run over the same shapes allocates nothing and gives the same bits. */
static void test_warm(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	assert_int_equal(dev_open("cpu", &d, &e), 0);
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
		for (int trans = 0; trans < 4; trans++) {
			struct tensors ts;
			tensors_init(&ts, d, seed);
			struct dev_gemm g = gemm_of(&shapes[s], trans, 0, DT_BF16, DT_BF16);
			struct tensor64 *a = tensor_normal(&ts, DT_BF16, most(g.m * g.k), 1),
					*b = tensor_normal(&ts, DT_BF16, most(g.k * g.n), 1),
					*c = tensor_nan(&ts, DT_BF16, most(g.m * g.n));
			g.a = DEV_REF(a->b, 0);
			g.b = DEV_REF(b->b, 0);
			g.c = DEV_REF(c->b, 0);
			assert_int_equal(dev_gemm(d, &g, &e), 0);
			double *first = tensor_fetch(&ts, c);
			uint64_t before = mem_count(), bufs = d->allocs;
			for (int i = 0; i < 3; i++)
				assert_int_equal(dev_gemm(d, &g, &e), 0);
			assert_int_equal(mem_count() - before, 0);
			assert_int_equal(d->allocs - bufs, 0);
			tensor_check(&ts, c, first, 0, 0, "again");
			assert_int_equal(ts.failed, 0);
			mem_free(first);
			tensors_release(&ts);
		}
	dev_close(d);
}

/* Products are cut into blocks for the number of threads: each is right, and as exact. */
static void test_threads(void **state)
{
	(void)state;
	static const struct shape some[] = {
		{ 512, 960, 576 },  { 700, 48, 576 },  { 530, 16, 577 },  { 512, 576, 16 },
		{ 16, 576, 2048 },  { 576, 16, 2048 }, { 128, 3500, 96 }, { 128, 576, 6000 },
		{ 37, 311, 515 },   { 24, 768, 1024 }, { 300, 50, 700 },  { 6, 333, 257 },
		{ 513, 1031, 127 },
	};
	static const enum dtype pairs[][2] = { { DT_F32, DT_F32 },
					       { DT_BF16, DT_BF16 },
					       { DT_BF16, DT_F32 } };
	static const int threads[] = { 1, 2, 3, 16 };
	const int before = omp_get_max_threads();
	int failed = 0;
	for (size_t i = 0; i < ARRAY_LEN(threads) * ARRAY_LEN(pairs); i++) {
		const enum dtype *p = pairs[i % ARRAY_LEN(pairs)];
		struct err e = { 0 };
		struct dev *d;
		struct tensors ts;
		omp_set_num_threads(threads[i / ARRAY_LEN(pairs)]);
		assert_int_equal(dev_open("cpu", &d, &e), 0);
		tensors_init(&ts, d, rng_fold(seed, i));
		for (size_t s = 0; s < ARRAY_LEN(some); s++) {
			const int how = (int)(s + i) % 4, odd = (int)(s + i / 4) % 2;
			one(&ts, &some[s], how, odd ? 5 : 0, p[0], p[1], odd ? -0.5f : 1,
			    how & 1 ? 1 : 0, false);
		}
		failed += ts.failed;
		dev_close(d);
	}
	omp_set_num_threads(before);
	assert_int_equal(failed, 0);
}

/* More shapes than the backend's cache holds. */
static void test_many_shapes(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	assert_int_equal(dev_open("cpu", &d, &e), 0);
	struct tensors ts;
	tensors_init(&ts, d, seed);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 600; i++) {
			struct shape s = { 5 + i % 30, 5 + i / 30, 8 };
			one(&ts, &s, 0, 0, DT_F32, DT_F32, 1, 0, false);
		}
	assert_int_equal(ts.failed, 0);
	dev_close(d);
}

/* The bytes of C (m,ldc) in `ct` of one product by the portable kernel in one shape. */
static void *in_shape(struct dev *d, int shape, const struct shape *s, int trans, int pad,
		      enum dtype t, enum dtype ct)
{
	struct err e = { 0 };
	struct tensors ts;
	char digit[2] = { (char)('0' + shape), 0 };
	setenv("HS_GEMM_SHAPE", digit, 1);
	tensors_init(&ts, d, 7);
	struct dev_gemm g = gemm_of(s, trans, pad, t, ct);
	struct tensor64 *a = tensor_normal(&ts, t, (g.ta ? g.k : g.m) * g.lda, 1),
			*b = tensor_normal(&ts, t, (g.tb ? g.n : g.k) * g.ldb, 1),
			*c = tensor_normal(&ts, ct, g.m * g.ldc, 1);
	const size_t bytes = (size_t)(g.m * g.ldc) * dtype_size(ct);
	g.a = DEV_REF(a->b, 0);
	g.b = DEV_REF(b->b, 0);
	g.c = DEV_REF(c->b, 0);
	g.beta = pad ? 1 : 0;
	void *got = mem_alloc(bytes);
	if (dev_gemm(d, &g, &e) < 0 || dev_download(got, g.c, bytes, &e) < 0)
		fail_msg("%s", e.msg);
	double *want = mem_array((size_t)c->n, sizeof *want);
	memcpy(want, c->v, (size_t)c->n * sizeof *want);
	ref_gemm(want, a->v, b->v, g.m, g.n, g.k, g.ta, g.tb, g.lda, g.ldb, g.ldc, 1,
		 (double)g.beta);
	ts.floor = sqrt((double)g.k);
	tensor_check(&ts, c, want, ct == DT_F32 ? 1e-5 : 0x1.1p-8, 4e-6, "shape %d", shape);
	assert_int_equal(ts.failed, 0);
	mem_free(want);
	tensors_release(&ts);
	unsetenv("HS_GEMM_SHAPE");
	return got;
}

/* Every shape of the portable product is right, and gives the bits of the others; so do pieces. */
static void test_every_shape(void **state)
{
	static const char *const specs[] = { "cuda:0", "opencl:0" };
	static const struct shape some[] = { { 127, 131, 113 }, { 256, 72, 168 }, { 5, 150, 40 },
					     { 130, 16, 64 },   { 17, 203, 65 },  { 71, 3, 129 },
					     { 1, 64, 128 },    { 16, 16, 1 } };
	(void)state;
	setenv("FAKE_RT", "noblas", 1);
	setenv("HS_CLBLAST", "0", 1);
	for (size_t b = 0; b < ARRAY_LEN(specs); b++) {
		struct err e = { 0 };
		struct dev *d;
		if (dev_open(specs[b], &d, &e) < 0) {
			print_message("%s skipped: %s\n", specs[b], e.msg);
			continue;
		}
		for (size_t i = 0; i < ARRAY_LEN(some) * 8; i++) {
			const struct shape *s = &some[i / 8];
			const int trans = i & 3, pad = i & 4 ? 5 : 0;
			const enum dtype t = i % 3 ? DT_F32 : DT_BF16, ct = i % 2 ? t : DT_F32;
			const size_t n = (size_t)s->m * (size_t)(s->n + 3 * pad) * dtype_size(ct);
			/* so many passes are enough for one step or a few of each shape */
			enum { FEW_PASSES = 520 };
			struct opencl *cl = b ? d->priv : NULL;
			void *first = in_shape(d, 0, s, trans, pad, t, ct);
			for (int k = 1; k < (b ? 2 : 1) * GPU_SHAPES; k++) {
				const int64_t most = cl ? cl->passes : 0;
				if (k >= GPU_SHAPES)
					cl->passes = FEW_PASSES;
				void *other = in_shape(d, k % GPU_SHAPES, s, trans, pad, t, ct);
				assert_memory_equal(first, other, n);
				mem_free(other);
				if (cl)
					cl->passes = most;
			}
			mem_free(first);
		}
		dev_close(d);
	}
	unsetenv("FAKE_RT");
	unsetenv("HS_CLBLAST");
}

static int tried, quick_few;
static int pretended(struct dev *d, const struct dev_gemm *g, int shape, struct err *e)
{
	(void)d, (void)e;
	tried++;
	const bool quick = g->n == 16 ? shape == quick_few : shape == 3;
	usleep(quick ? 3000 : 40000);
	return 0;
}

/* The quickest shape is found once and kept for the next process. */
static void test_choice_is_kept(void **state)
{
	struct dev_gemm g = { .m = 4096, .n = 4096, .k = 64, .ab_dtype = DT_F32, .alpha = 1 };
	char key[GPU_KEY], text[64];
	struct err e = { 0 };
	struct dev *d;
	int best = -1;
	(void)state;
	const int n = snprintf(text, sizeof text, "%lld %d", (long long)clock_wall(), getpid());
	gpu_cache_key(NULL, 0, text, (size_t)n, key);
	assert_int_equal(dev_open("null", &d, &e), 0);
	g.k = 2; /* too small to ask for it */
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 1);
	assert_true(best < 0 && tried == 0);
	g.k = 64;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 3);
	assert_true(tried > 0);
	tried = 0;
	best = -1;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 3);
	assert_int_equal(tried, 0);
	g.n = 16; /* an adapter's rank */
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 0);
	best = GPU_LARGE - 1; /* of a processor */
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), GPU_LARGE - 1);
	quick_few = GPU_SHAPES - 1;
	key[0] = key[0] == '0' ? '1' : '0'; /* another device */
	best = -1;
	g.n = 4096;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 3);
	best = -1;
	tried = 0;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), 3);
	assert_int_equal(tried, 0);
	for (int64_t few = 1; few <= 128; few++) {
		g.n = few;
		assert_int_equal(gpu_tune(d, &g, key, pretended, &best), few <= 32   ? quick_few
									 : few <= 64 ? 1
										     : 3);
	}
	g.n = 4096;
	g.m = 16;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), quick_few);
	best = 2 * GPU_LARGE - 1;
	g.m = 96;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), quick_few);
	g.m = 97;
	assert_int_equal(gpu_tune(d, &g, key, pretended, &best), GPU_LARGE - 1);
	dev_close(d);
}

/* Tiles that would be half empty give way to smaller ones. */
static void test_tiles_fit(void **state)
{
	enum { P = GPU_LARGE - 1, FEW = GPU_SHAPES - 1 };
	static const struct {
		int64_t m, n, k;
		int best, shape;
	} row[] = {
		{ 64, 576, 16, 3 + GPU_LARGE, 1 },
		{ 65, 576, 16, 3 + GPU_LARGE, 3 },
		{ 576, 64, 576, 3, 1 },
		{ 64, 576, 576, 2, 1 },
		{ 576, 64, 576, 2, 2 },
		{ 32, 576, 576, 3, 0 },
		{ 576, 32, 16, 3 + GPU_LARGE, FEW },
		{ 64, 576, 16, P + GPU_LARGE, 0 },
		{ 65, 576, 16, P + GPU_LARGE, P },
		{ 16, 576, 32, P + GPU_LARGE, 0 },
		{ 64, 576, 64, P + GPU_LARGE, FEW },
		{ 16, 576, 64, P, P },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		const struct dev_gemm g = { .m = row[i].m, .n = row[i].n, .k = row[i].k };
		assert_int_equal(gpu_gemm_shape(&g, row[i].best), row[i].shape);
	}
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const char *s = getenv("HS_SEED");
	seed = s ? strtoull(s, NULL, 10) : (uint64_t)clock_wall();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),        cmocka_unit_test(test_warm),
		cmocka_unit_test(test_threads),         cmocka_unit_test(test_many_shapes),
		cmocka_unit_test(test_every_shape),     cmocka_unit_test(test_choice_is_kept),
		cmocka_unit_test(test_tiles_fit),       cmocka_unit_test(test_clblast_sizes),
		cmocka_unit_test(test_narrow_processor)
	};
	const struct CMUnitTest some[] = { cmocka_unit_test(test_products),
					   cmocka_unit_test(test_warm) };
	return getenv(narrow) ? cmocka_run_group_tests(some, NULL, NULL)
			      : cmocka_run_group_tests(tests, NULL, NULL);
}
