/* SPDX-License-Identifier: Apache-2.0 */
/* long.h - whether this is `make test-long`. */
#ifndef HS_TESTS_SUPPORT_LONG_H
#define HS_TESTS_SUPPORT_LONG_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool test_is_long(void)
{
	const char *s = getenv("TEST_LONG");
	return s && *s && strcmp(s, "0") != 0;
}

#endif
