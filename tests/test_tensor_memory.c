/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_memory.c - the stack of device memory of tensor.h: how it grows, what it holds. */
#include "base/err.h"
#include "base/rng.h"
#include "tensor/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Two microbatches of different size through one stack: what it holds in the end is what the larger
 * one needs, in one piece. */
static void a_stack_that_grew_is_one_block(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	struct dmem m;
	struct dev_ref r[3][40];
	size_t need[3] = { 0 };
	uint64_t allocs = 0;
	assert_true(dev_open("cpu", &d, &e) >= 0);
	dmem_init(&m, d, 4096);
	for (int pass = 0; pass < 3; pass++) {
		struct dmem_mark half = { 0 };
		for (int i = 0; i < 40; i++) {
			size_t bytes = 64 * (1 + rng_mix64((uint64_t)i) % 100) * (pass ? 3 : 2);
			if (i == 20)
				half = dmem_mark(&m);
			assert_true(dmem_take(&m, bytes, &r[pass][i], &e) >= 0);
			assert_true(r[pass][i].off % 64 == 0 &&
				    r[pass][i].off + bytes <= r[pass][i].buf->size);
			for (int k = 0; k < i; k++)
				assert_false(r[pass][k].buf == r[pass][i].buf &&
					     r[pass][k].off == r[pass][i].off);
			need[pass] += bytes;
		}
		assert_int_equal(m.bytes, need[pass]);
		dmem_back(&m, half);
		assert_true(m.bytes < need[pass]);
		dmem_reset(&m);
		assert_int_equal(m.nblock, 1);
		assert_int_equal(d->mem_used, need[pass]);
		if (pass == 1)
			allocs = d->allocs;
	}
	assert_int_equal(d->allocs, allocs); /* the third needs nothing new */
	dmem_release(&m);
	assert_true(dmem_take(&m, 64, &r[0][0], &e) >= 0);
	dmem_expect(&m, 100000); /* what is known beforehand comes in one block */
	allocs = d->allocs;
	for (int i = 0; i < 90; i++)
		assert_true(dmem_take(&m, 1024, &r[0][0], &e) >= 0);
	assert_int_equal(d->allocs, allocs);
	assert_int_equal(m.nblock, 2);
	assert_true(d->mem_used < 105000);
	dmem_reset(&m);
	/* what is larger than all of an empty stack takes its place */
	assert_true(dmem_take(&m, 200000, &r[0][0], &e) >= 0);
	assert_true(d->mem_used < 205000);
	dmem_release(&m);
	dev_close(d);
}

/* While it grows, tensors fill what others left at the ends of blocks, the one that they fill best;
 * what is given back is room again, in each block. */
static void ends_of_blocks_are_filled(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	struct dmem m;
	struct dev_ref r[8];
	assert_true(dev_open("cpu", &d, &e) >= 0);
	dmem_init(&m, d, 4096);
	static const size_t bytes[] = { 2560, 3072, 6400, 1024, 1536, 64 };
	static const int block[] = { 0, 1, 2, 1, 0, 3 };
	struct dmem_mark k = { 0 };
	for (int i = 0; i < 6; i++) {
		if (i == 3)
			k = dmem_mark(&m);
		assert_true(dmem_take(&m, bytes[i], &r[i], &e) >= 0);
		assert_ptr_equal(r[i].buf, m.block[block[i]].buf);
	}
	assert_int_equal(r[3].off, 3072);
	assert_int_equal(r[4].off, 2560);
	assert_int_equal(d->mem_used, 3 * 4096 + 6400);
	dmem_back(&m, k);
	assert_int_equal(m.bytes, 2560 + 3072 + 6400);
	assert_true(dmem_take(&m, 1536, &r[6], &e) >= 0);
	assert_true(dmem_take(&m, 1024, &r[7], &e) >= 0);
	assert_true(r[6].buf == r[4].buf && r[6].off == r[4].off);
	assert_true(r[7].buf == r[3].buf && r[7].off == r[3].off);
	dmem_reset(&m);
	assert_int_equal(d->mem_used, m.peak);
	dmem_release(&m);
	dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stack_that_grew_is_one_block),
		cmocka_unit_test(ends_of_blocks_are_filled),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
