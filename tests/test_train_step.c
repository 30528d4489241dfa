/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_step.c - a warm training step allocates nothing, on the host or on the device,
 * whatever the weights and with recomputation; and what a layer asks of a card. */
#include "base/err.h"
#include "base/mem.h"
#include "runtime/step_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>

#include <cmocka.h>

static void a_warm_step_allocates_nothing(void **state)
{
	(void)state;
	static const struct step_bench_options kinds[] = {
		{ .act = DT_F32 },
		{ .act = DT_F32, .nf4 = true, .double_quant = true },
		{ .act = DT_F32, .nf4 = true, .recompute = true },
		{ .act = DT_BF16 },
		{ .act = DT_BF16, .nf4 = true, .recompute = true },
	};
	struct model_config c;
	struct err e = { 0 };
	assert_true(step_bench_shape("smollm2-135m", 2, &c, &e) >= 0);
	c.vocab = 1031;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct step_bench_options o = kinds[i];
		struct step_bench_result r;
		struct dev *d;
		assert_true(dev_open("cpu", &d, &e) >= 0);
		o.rows = 2;
		o.length = 37;
		o.lora_r = 4;
		o.repeat = 3;
		if (step_bench(d, &c, &o, &r, &e) < 0)
			fail_msg("%s", e.msg);
		printf("%s%s%s: loss %.4f, %llu allocations in the last step\n", dtype_name(o.act),
		       o.nf4 ? ", NF4" : "", o.recompute ? ", recomputed" : "", r.loss,
		       (unsigned long long)r.warm_allocs);
		assert_true(isfinite(r.loss));
		assert_int_equal(r.warm_allocs, 0);
		dev_close(d);
	}
}

/* What the null device is given for three layers less what it is given for two. */
static struct step_bench_result of_a_layer(enum dtype act, bool nf4, bool recompute)
{
	struct step_bench_result r[2];
	for (int i = 0; i < 2; i++) {
		struct model_config c;
		struct err e = { 0 };
		struct dev *d;
		const struct step_bench_options o = { .act = act,
						      .nf4 = nf4,
						      .double_quant = nf4,
						      .recompute = recompute,
						      .rows = 4,
						      .length = 64,
						      .lora_r = 16,
						      .repeat = 1 };
		assert_true(step_bench_shape("smollm2-135m", 2 + i, &c, &e) >= 0);
		c.vocab = 61;
		assert_true(dev_open("null", &d, &e) >= 0);
		if (step_bench(d, &c, &o, &r[i], &e) < 0)
			fail_msg("%s", e.msg);
		dev_close(d);
	}
	r[1].given -= r[0].given;
	r[1].product_bytes -= r[0].product_bytes;
	r[1].copy_bytes -= r[0].copy_bytes;
	return r[1];
}

/* docs/measurements.md has these numbers for sequences of 512. */
static void a_layer_takes_so_many_launches(void **state)
{
	static const struct {
		enum dtype act;
		bool nf4, recompute;
		uint64_t given, product_bytes, copy_bytes;
	} row[] = {
		{ DT_BF16, false, false, 40, 30425088, 0 },
		{ DT_BF16, true, false, 54, 30425088, 0 },
		{ DT_BF16, false, true, 56, 44769280, 294912 },
		{ DT_BF16, true, true, 77, 44769280, 294912 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct step_bench_result r =
			of_a_layer(row[i].act, row[i].nf4, row[i].recompute);
		printf("%s%s%s: %llu kernels, products and copies a layer; products move %llu "
		       "bytes, copies %llu\n",
		       dtype_name(row[i].act), row[i].nf4 ? ", NF4" : "",
		       row[i].recompute ? ", recomputed" : "", (unsigned long long)r.given,
		       (unsigned long long)r.product_bytes, (unsigned long long)r.copy_bytes);
		assert_int_equal(r.given, row[i].given);
		assert_int_equal(r.product_bytes, row[i].product_bytes);
		assert_int_equal(r.copy_bytes, row[i].copy_bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_warm_step_allocates_nothing),
					    cmocka_unit_test(a_layer_takes_so_many_launches) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
