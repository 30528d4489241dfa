/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_state_cut.c - who owns which elements: cuts behind blocks, and everybody's share in
 * sum, also where each parameter has only a few blocks. */
#include "tensor/state_cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MEMBERS = 3, SIZES = 6, ROUNDS = 5 };

/* Adapters of a narrow layer, a vector, a matrix: in blocks 2.25, 2.25, 0.75, 1, 0.1, 81. */
static const int64_t size[SIZES] = { 9216, 9216, 3072, 4096, 576, 331776 };

static int64_t distance(int64_t a, int64_t b) { return a > b ? a - b : b - a; }

static void shares_in_sum(const int *share)
{
	const struct state_cut c = { .n = MEMBERS, .share = share };
	struct state_dealt d = { { 0 } };
	int64_t own[MEMBERS] = { 0 }, all = 0, cut[MEMBERS + 1];
	for (int i = 0; i < ROUNDS * SIZES; i++) {
		const int64_t count = size[i % SIZES];
		state_cut_find(&c, &d, count, cut);
		assert_int_equal(cut[0], 0);
		assert_int_equal(cut[MEMBERS], count);
		all += count;
		for (int k = 0; k < MEMBERS; k++) {
			assert_true(cut[k] <= cut[k + 1]);
			assert_true(cut[k] % STATE_BLOCK == 0 || cut[k] == count);
			own[k] += cut[k + 1] - cut[k];
			if (!share[k])
				assert_int_equal(own[k], 0);
			/* either end of what it has is off by a block at most */
			assert_true(distance(own[k], all * share[k] / STATE_WHOLE) <=
				    2 * STATE_BLOCK);
			assert_int_equal(d.at[k], own[k]);
		}
	}
}

static void test_shares(void **state)
{
	(void)state;
	shares_in_sum((const int[]){ 500000, 500000, 0 });
	shares_in_sum((const int[]){ 0, 300000, 700000 });
	shares_in_sum((const int[]){ 333333, 333333, 333334 });
	shares_in_sum((const int[]){ 0, STATE_WHOLE, 0 });
}

static void test_whole(void **state)
{
	(void)state;
	static const int share[MEMBERS] = { 500000, 250000, 250000 };
	const struct state_cut c = { .n = MEMBERS, .share = share, .whole = true };
	struct state_dealt d = { { 0 } };
	int64_t cut[MEMBERS + 1];
	for (int i = 0; i < 8; i++) {
		state_cut_find(&c, &d, 1000, cut);
		int owners = 0;
		for (int k = 0; k < MEMBERS; k++)
			owners += cut[k + 1] - cut[k] == 1000;
		assert_int_equal(owners, 1);
	}
	assert_int_equal(d.at[0], 4000);
	assert_int_equal(d.at[1], 2000);
	assert_int_equal(d.at[2], 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shares),
					    cmocka_unit_test(test_whole) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
