/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_expert_cache.c - frozen experts in the memory of the host: matrices come back with
 * their bytes, plain and in 4 bits; no more slots than allowed; the one that is used least goes
 * first; and old use is forgotten. What is marked comes beside a product, and nothing that is still
 * needed makes room for it. */
#include "base/err.h"
#include "base/mem.h"
#include "tensor/expert_cache.h"
#include "tensor/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { EXPERTS = 6, ROWS = 8, COLUMNS = 32, N = ROWS * COLUMNS };

struct bench {
	struct dev *dev, *host;
	struct param p[EXPERTS];
	float v[EXPERTS][N]; /* as they were before */
	struct expert_cache *cache;
};

#define OK(x)                                                                                      \
	do {                                                                                       \
		if ((x) < 0)                                                                       \
			fail_msg("%s", e.msg);                                                     \
	} while (0)

static int rows_of(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	(void)e;
	for (int64_t i = 0; i < rows * COLUMNS; i++)
		dst[i] = (float)((row0 * COLUMNS + i) * 7 % 31 - 15) * 0.1f * *(float *)ctx;
	return 0;
}

static void numbers(const struct bench *b, int i, float *dst)
{
	struct err e = { 0 };
	struct dev_buf *out;
	OK(dev_alloc(b->dev, N * 4, &out, &e));
	OK(weight_rows_f32(&b->p[i].w, b->dev, 0, ROWS, DEV_REF(out, 0), &e));
	OK(dev_download(dst, DEV_REF(out, 0), N * 4, &e));
	dev_free(out);
}

static void begin(struct bench *b, const char *device, bool nf4, uint64_t bytes)
{
	struct err e = { 0 };
	static char name[EXPERTS][16];
	const int64_t dim[2] = { ROWS, COLUMNS };
	*b = (struct bench){ 0 };
	OK(dev_open(device, &b->dev, &e));
	OK(dev_open("cpu", &b->host, &e));
	OK(expert_cache_new(b->dev, b->host, bytes, 2, &b->cache, &e));
	for (int i = 0; i < EXPERTS; i++) {
		float scale = (float)(1 + i), v[N];
		snprintf(name[i], sizeof name[i], "expert %d", i);
		if (nf4) {
			OK(param_quantize_nf4(&b->p[i], b->dev, name[i], dim, true, rows_of, &scale,
					      &e));
		} else {
			rows_of(&scale, 0, ROWS, v, &e);
			OK(param_init_plain(&b->p[i], b->dev, name[i], 2, dim, DT_F32, false, &e));
			OK(param_upload_f32(&b->p[i], 0, N, v, &e));
		}
		numbers(b, i, b->v[i]);
		OK(expert_cache_take(b->cache, &b->p[i], &e));
		assert_null(b->p[i].w.data.buf);
	}
}

static void end(struct bench *b)
{
	for (int i = 0; i < EXPERTS; i++)
		param_release(&b->p[i]);
	expert_cache_free(b->cache);
	dev_close(b->host);
	dev_close(b->dev);
}

/* Brings it, compares, and says whether it had to travel. */
static bool travels(struct bench *b, int i)
{
	struct err e = { 0 };
	float v[N];
	const uint64_t before = expert_cache_counts(b->cache).misses;
	OK(expert_cache_bring(&b->p[i], &e));
	numbers(b, i, v);
	assert_memory_equal(v, b->v[i], sizeof v);
	return expert_cache_counts(b->cache).misses > before;
}

static void the_least_used_goes(struct bench *b)
{
	assert_true(travels(b, 0));
	assert_false(travels(b, 0));
	assert_true(travels(b, 1));
	assert_false(travels(b, 0)); /* 0 three times, 1 once */
	assert_true(travels(b, 2));  /* in place of 1 */
	assert_false(travels(b, 0));
	assert_true(travels(b, 1)); /* in place of 2 */
	assert_false(travels(b, 0));
	const struct expert_counts c = expert_cache_counts(b->cache);
	assert_int_equal(c.misses, 4);
	assert_int_equal(c.hits, 4);
	/* 0 is not needed any more: others take its slot */
	for (int k = 0; k < 64 * EXPERTS * 4; k++)
		travels(b, 3 + k % 2);
	assert_false(travels(b, 3));
	assert_false(travels(b, 4));
	assert_true(travels(b, 0));
}

/* As the products over all experts do: two slots, four experts. */
static void the_next_comes_ahead(struct bench *b)
{
	struct err e = { 0 };
	for (int i = 0; i < 4; i++)
		expert_cache_want(&b->p[i]);
	for (int i = 0; i < 4; i++) {
		assert_true(i == 0 || expert_cache_has(&b->p[i]));
		assert_true(travels(b, i)); /* it came before, but because it was needed */
		OK(dev_meet(b->dev, &e));
		if (i < 3)
			OK(expert_cache_ahead(&b->p[i + 1], &e));
		if (i < 2) { /* one slot has what the last product reads, one the next matrix */
			OK(expert_cache_ahead(&b->p[i + 2], &e));
			assert_false(expert_cache_has(&b->p[i + 2]));
		}
	}
	assert_true(expert_cache_has(&b->p[2]) && expert_cache_has(&b->p[3]));
	const struct expert_counts c = expert_cache_counts(b->cache);
	assert_int_equal(c.misses, 4);
	assert_int_equal(c.hits, 0);
	assert_true(c.beside <= c.bytes && c.bytes % 4 == 0);
}

static void comes_back(const char *device)
{
	for (int nf4 = 0; nf4 < 2; nf4++) {
		struct bench b;
		struct err e = { 0 };
		struct dev *d;
		if (dev_open(device, &d, &e) < 0) {
			printf("%s: none here\n", device);
			return;
		}
		dev_close(d);
		begin(&b, device, nf4, 0);
		const uint64_t all = b.dev->mem_used;
		the_least_used_goes(&b);
		const uint64_t matrix = nf4 ? N / 2 + N / 64 : N * 4;
		printf("%s, %s: slots of %llu bytes\n", device, nf4 ? "NF4" : "F32",
		       (unsigned long long)(b.dev->mem_used - all));
		assert_true(b.dev->mem_used - all <= 2 * (matrix + 512));
		end(&b);
		begin(&b, device, nf4, 0);
		the_next_comes_ahead(&b);
		end(&b);
		/* less than one is one */
		begin(&b, device, nf4, 1);
		for (int i = 0; i < EXPERTS; i++)
			assert_true(travels(&b, i));
		assert_true(travels(&b, 0));
		assert_false(travels(&b, 0));
		expert_cache_want(&b.p[1]);
		OK(expert_cache_ahead(&b.p[1], &e));
		assert_false(expert_cache_has(&b.p[1]));
		end(&b);
	}
}

static void on_the_processor(void **state)
{
	(void)state;
	comes_back("cpu");
}

static void on_opencl(void **state)
{
	(void)state;
	comes_back("opencl");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(on_the_processor),
					    cmocka_unit_test(on_opencl) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
