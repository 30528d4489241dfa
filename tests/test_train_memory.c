/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_memory.c - the advice for a device whose memory does not suffice: the estimate behind
 * it against what a step really takes (counted on the null device, which computes nothing), and
 * that following the advice fits. */
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "runtime/memory_advice.h"
#include "runtime/step_bench.h"
#include "tensor/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LENGTH = 256, LAYERS = 3 };

static uint64_t peak(const struct model_config *c, int rows, bool recompute)
{
	struct err e = { 0 };
	struct dev *d;
	struct step_bench_result r;
	const struct step_bench_options o = { .act = DT_F32,
					      .recompute = recompute,
					      .rows = rows,
					      .length = LENGTH,
					      .lora_r = 16,
					      .repeat = 1,
					      .all_trained = true };
	if (dev_open("null", &d, &e) < 0 || step_bench(d, c, &o, &r, &e) < 0)
		fail_msg("%s", e.msg);
	dev_close(d);
	return r.mem_peak;
}

static struct memory_ask ask(const struct model_config *c, const struct stage_options *o)
{
	return (struct memory_ask){
		.cfg = c, .opt = o, .layers = c->layers, .end = true, .in_flight = 1
	};
}

static struct stage_options options(bool recompute)
{
	struct stage_options o = { .act = DT_F32, .recompute = recompute, .lora = { .r = 16 } };
	o.lora.target[LIN_Q] = o.lora.target[LIN_K] = o.lora.target[LIN_V] = o.lora.target[LIN_O] =
		true;
	return o;
}

static void the_estimate_is_near_what_a_step_takes(void **state)
{
	static const char *const shapes[] = { "smollm2-135m", "llama3.2-1b" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shapes) * 2; i++) {
		struct model_config c;
		struct err e = { 0 };
		const struct stage_options o = options(i % 2);
		assert_int_equal(step_bench_shape(shapes[i / 2], LAYERS, &c, &e), 0);
		c.vocab = 2048; /* the table's size is not the question */
		const struct memory_ask a = ask(&c, &o);
		const double took = (double)(peak(&c, 16, i % 2) - peak(&c, 4, i % 2));
		const double said = (double)(memory_of_pass(&a, 16 * LENGTH, i % 2) -
					     memory_of_pass(&a, 4 * LENGTH, i % 2));
		printf("%s%s: 12 rows more take %.1f MiB, estimated %.1f\n", shapes[i / 2],
		       i % 2 ? ", checkpointing" : "", took / 0x1p20, said / 0x1p20);
		assert_true(said > 0.9 * took && said < 1.3 * took);
	}
}

/* For a small table of words and a large one. */
static void the_estimate_has_room_for_the_logits(void **state)
{
	static const int64_t words[] = { 2048, 49152, 151936 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		struct model_config c;
		struct err e = { 0 };
		const struct stage_options o = options(false);
		assert_int_equal(step_bench_shape("smollm2-135m", LAYERS, &c, &e), 0);
		c.vocab = words[i];
		struct memory_ask a = ask(&c, &o);
		const uint64_t with = memory_of_pass(&a, LENGTH, false);
		a.end = false;
		assert_true(with - memory_of_pass(&a, LENGTH, false) >=
			    (uint64_t)(op_loss_rows(words[i]) * words[i]) * 4);
	}
}

static void following_the_advice_fits(void **state)
{
	struct model_config c;
	struct err e = { 0 };
	struct stage_options o = options(false);
	(void)state;
	assert_int_equal(step_bench_shape("smollm2-135m", 0, &c, &e), 0);
	struct memory_ask a = ask(&c, &o);
	a.tokens = 8192;
	a.parameters = (uint64_t)600 << 20;
	a.there = (uint64_t)4 << 30;
	err_set(&e, ERR_NOMEM, "opencl:0 is out of memory");
	memory_advice(&a, &e);
	assert_int_equal(e.code, ERR_NOMEM);
	assert_ptr_equal(strstr(e.msg, "opencl:0 is out of memory; "), e.msg);
	const char *by = strstr(e.msg, "sequence_len by ");
	assert_non_null(by);
	const long times = strtol(by + strlen("sequence_len by "), NULL, 10);
	assert_true(times > 1);
	assert_true(a.parameters + memory_of_pass(&a, a.tokens / times, false) <= a.there);
	assert_true(a.parameters + memory_of_pass(&a, a.tokens, false) > a.there);
	assert_non_null(strstr(e.msg, "gradient_checkpointing: true needs"));
	assert_non_null(strstr(e.msg, "load_in_4bit: true frees"));
	/* what is in use already is not recommended */
	o.recompute = o.quantize = true;
	err_set(&e, ERR_NOMEM, "opencl:0 is out of memory");
	memory_advice(&a, &e);
	assert_null(strstr(e.msg, "gradient_checkpointing"));
	assert_null(strstr(e.msg, "load_in_4bit"));
	/* parameters that do not fit: microbatches have nothing to do with it */
	o.quantize = false;
	a.tokens = 0;
	err_set(&e, ERR_NOMEM, "opencl:0 is out of memory");
	memory_advice(&a, &e);
	assert_null(strstr(e.msg, "micro_batch_size"));
	assert_non_null(strstr(e.msg, "load_in_4bit: true frees"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_estimate_is_near_what_a_step_takes),
		cmocka_unit_test(the_estimate_has_room_for_the_logits),
		cmocka_unit_test(following_the_advice_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
