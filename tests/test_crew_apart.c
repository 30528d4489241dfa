/* SPDX-License-Identifier: Apache-2.0 */
/* test_crew_apart.c - pairs of workers that do not reach each other, and the time limits after the
 * members have changed: pure functions. What follows from them is in test_train_stays_apart.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "crew/apart.h"
#include "crew/patience.h"

static const int64_t second = 1000000000;

static void pairs(void **state)
{
	struct apart p;
	struct err e = { 0 };
	int a = -1, b = -1;
	int64_t now = 5 * second;
	(void)state;
	assert_int_equal(apart_init(&p, 4, &e), 0);
	/* a link that breaks once is made again; a step in between, and it may break once more */
	assert_false(apart_broke(&p, 2, 1, true, now));
	assert_false(apart_is(&p, 1, 2));
	apart_worked(&p, 1);
	assert_false(apart_broke(&p, 1, 2, true, now));
	apart_worked(&p, 3); /* that is none of the two */
	assert_true(apart_broke(&p, 2, 1, true, now));
	assert_true(apart_is(&p, 1, 2) && apart_is(&p, 2, 1));
	assert_false(apart_is(&p, 1, 3) || apart_is(&p, 1, 1) || apart_is(&p, 0, 2));
	/* one that cannot be made */
	assert_true(apart_broke(&p, 0, 3, false, now));
	assert_true(apart_is(&p, 0, 3));
	assert_false(apart_again(&p, now + 59 * second, &a, &b));
	now += 61 * second;
	assert_true(apart_again(&p, now, &a, &b) && a == 0 && b == 3);
	assert_true(apart_again(&p, now, &a, &b) && a == 1 && b == 2);
	assert_false(apart_again(&p, now, &a, &b));
	assert_false(apart_is(&p, 0, 3) || apart_is(&p, 1, 2));
	/* the second time it is longer */
	assert_true(apart_broke(&p, 0, 3, false, now));
	assert_false(apart_again(&p, now + 119 * second, &a, &b));
	assert_true(apart_again(&p, now + 121 * second, &a, &b));
	apart_release(&p);
}

static void time_limits(void **state)
{
	(void)state;
	/* kernels are compiled: as in the first step of all */
	assert_true(patience_changed(0, 2, 0, false).stall == 600);
	assert_true(patience_changed(0, 2, 3, true).stall == 600);
	/* nobody is new: what was measured counts */
	assert_true(patience_changed(0, 2, 3, false).stall == 30);
	assert_true(patience_changed(0, 2, 20, false).stall == 200);
	assert_true(patience_changed(0, 90, 20, true).stall == 900);
	/* what the user says */
	assert_true(patience_changed(7, 90, 20, true).stall == 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs),
		cmocka_unit_test(time_limits),
	};
	return cmocka_run_group_tests_name("crew_apart", tests, NULL, NULL);
}
