/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_step.c - a warm training step allocates nothing, on the host or on the device,
 * whatever the weights and with recomputation. */
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_warm_step_allocates_nothing) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
