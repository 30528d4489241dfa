/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_bench.c - the benchmark runs through at tiny sizes, leaves no buffer behind, and its
 * rows make sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "dev/dev_bench.h"

#include <string.h>

struct seen {
	int rows, ceilings, copies, attention;
};

static void row(void *ctx, const struct dev_bench_row *r)
{
	struct seen *s = ctx;
	s->rows++;
	s->ceilings += r->kind == BENCH_CEILING;
	s->copies += r->kind == BENCH_COPY;
	s->attention += !strcmp(r->name, "attn_fwd") || !strcmp(r->name, "attn_bwd");
	assert_true(r->seconds > 0 && r->rate > 0 && r->share > 0);
	assert_true(r->name[0] && r->shape[0]);
}

static void test_runs(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	struct seen s = { 0 };
	/* primes, and a last sequence that is shorter */
	const struct dev_bench_shape shape = {
		.c = 13, .f = 29, .h = 4, .g = 2, .d = 6, .v = 101, .n = 37, .t = 11, .r = 3
	};
	assert_int_equal(dev_open("cpu", &d, &e), 0);
	if (dev_bench(d, &shape, row, &s, &e) < 0)
		fail_msg("%s", e.msg);
	print_message("%d rows\n", s.rows);
	assert_int_equal(s.ceilings, 2);
	assert_int_equal(s.copies, 1);
	assert_int_equal(s.attention, 4);
	assert_int_equal(d->mem_used, 0);
	struct dev_bench_shape bad = shape;
	bad.g = 3;
	assert_int_equal(dev_bench(d, &bad, row, &s, &e), ERR_USAGE);
	/* one product, and none */
	struct dev_bench_shape one = shape;
	one.products = true;
	one.only = "lora B";
	s = (struct seen){ 0 };
	assert_int_equal(dev_bench(d, &one, row, &s, &e), 0);
	assert_int_equal(s.rows - s.ceilings - s.copies, 1);
	one.only = "lora Z";
	assert_int_equal(dev_bench(d, &one, row, &s, &e), ERR_USAGE);
	dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_runs) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
