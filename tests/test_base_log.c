/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_log.c - lines that others can cause: how many, and what is shown of their words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

static void keep_line(void *ctx, enum log_level level, const char *line)
{
	(void)level;
	snprintf(ctx, 64, "%s", line);
}

/* Words of others are in it. */
static void a_line_is_one_line_for_any_terminal(void **state)
{
	(void)state;
	char line[64] = "";
	log_set_sink(keep_line, line, LOG_WARN);
	log_warn("a%sb", "\033[2J\xc2\x9b\xe2\x80\xae\xff\n");
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_string_equal(line, "a?[2J??? b");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_event_is_said_or_counted),
					    cmocka_unit_test(a_line_is_one_line_for_any_terminal) };
	return cmocka_run_group_tests_name("base_log", tests, NULL, NULL);
}
