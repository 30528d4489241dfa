/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_log.c - the limit of lines that others can cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"

#define SECOND ((int64_t)1000000000)

/* A thousand events a minute, for three minutes: each one is logged or counted. */
static void every_event_is_said_or_counted(void **state)
{
	(void)state;
	struct log_limit l = { 0 };
	enum { N = 2800 };
	unsigned said = 0, counted = 0;
	for (int i = 0; i < N; i++) {
		int64_t now = (5 * 16 + i) * SECOND / 16;
		said += log_limit_allows(&l, now);
		counted += log_limit_left_out(&l, now);
	}
	assert_int_equal(said, 3 * LOG_LIMIT);
	assert_int_equal(log_limit_left_out(&l, 182 * SECOND), 0); /* the minute is not over */
	unsigned last = log_limit_left_out(&l, 300 * SECOND);
	assert_true(last > 0 && counted > 0);
	assert_int_equal(said + counted + last, N);
	assert_int_equal(log_limit_left_out(&l, 400 * SECOND), 0);
	assert_true(log_limit_allows(&l, 400 * SECOND));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_event_is_said_or_counted) };
	return cmocka_run_group_tests_name("base_log", tests, NULL, NULL);
}
