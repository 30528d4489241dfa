/* SPDX-License-Identifier: Apache-2.0 */
/* deadline.h - a deadline for tests that wait without end where what they test is missing. When it
 * is over, the program says which test has not ended, and exits with status 1. It uses SIGALRM. */
#ifndef HS_TESTS_SUPPORT_DEADLINE_H
#define HS_TESTS_SUPPORT_DEADLINE_H

enum { DEADLINE = 50 /* seconds; under a sanitizer three times as many */ };

/* A row for cmocka: the test f with a deadline. */
#define deadline_test(f)                                                                           \
	cmocka_unit_test_prestate_setup_teardown(f, deadline_begin, deadline_end, (void *)#f)

/* *state: the name of the test, which must live until the end */
int deadline_begin(void **state);
int deadline_end(void **state);

#endif
