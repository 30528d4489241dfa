/* SPDX-License-Identifier: Apache-2.0 */
/* fake_rt.h - what the tests of the host code for CUDA and HIP share: a stand-in for driver,
 * compiler and product library (tests/drivers/fake_rt.c), and a cache folder of their own. */
#ifndef HS_TESTS_SUPPORT_FAKE_RT_H
#define HS_TESTS_SUPPORT_FAKE_RT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "support/cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char cache[] = "/tmp/hs-rt-XXXXXX";

static inline void faults(const char *words) { setenv("FAKE_RT", words, 1); }

static inline struct dev *open_card(const char *spec)
{
	struct dev *d;
	struct err e = { 0 };
	if (dev_open(spec, &d, &e) < 0)
		fail_msg("%s", e.msg);
	return d;
}

static inline struct dev_buf *take(struct dev *d, size_t n)
{
	struct dev_buf *b;
	struct err e = { 0 };
	if (dev_alloc(d, n, &b, &e) < 0)
		fail_msg("%s", e.msg);
	return b;
}

static inline void has(const char *text, const char *word)
{
	if (!strstr(text, word))
		fail_msg("'%s' is not in: %s", word, text);
}

/* y = alpha x */
static inline int scale(struct dev *d, struct dev_buf *y, struct dev_buf *x, int64_t n, float alpha,
			struct err *e)
{
	const union dev_arg a[] = { { .b = DEV_REF(y, 0) },
				    { .b = DEV_REF(x, 0) },
				    { .i = n },
				    { .f = alpha },
				    { .f = 0 } };
	return dev_launch(d, K_axpby, DT_F32, a, e);
}

static const char *const specs[] = { "cuda:0", "hip:0" };

static inline int said(char *text, size_t most, const char *env)
{
	char command[5000];
	snprintf(command, sizeof command, "%s \"$HS_BIN\" devices 2>&1", env);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	const size_t n = fread(text, 1, most - 1, f);
	text[n] = 0;
	return pclose(f);
}

static inline int one_launch(const char *spec, struct err *e)
{
	struct dev *d;
	int rc = dev_open(spec, &d, e);
	if (rc < 0)
		return rc;
	struct dev_buf *x = take(d, 64);
	rc = scale(d, x, x, 4, 1, e);
	if (rc == 0)
		rc = dev_sync(d, e);
	dev_free(x);
	dev_close(d);
	return rc;
}

static inline int prepare(void **state)
{
	(void)state;
	if (!mkdtemp(cache))
		return -1;
	setenv("XDG_CACHE_HOME", cache, 1);
	/* the number of devices is read once */
	struct err e = { 0 };
	faults("devices=2");
	if (backend_find("cuda")->count(&e) != 2 || backend_find("hip")->count(&e) != 2)
		return -1;
	faults("");
	return 0;
}

static inline void no_card(void **state)
{
	(void)state;
	skip();
}

static inline int tidy(void **state)
{
	(void)state;
	char command[300]; /* an OpenCL driver may keep its own things there */
	snprintf(command, sizeof command, "rm -rf '%s'", cache);
	return system(command);
}

/* Runs a group of tests with the stand-in; without it they count as skipped. */
#define FAKE_RT_MAIN(tests)                                                                        \
	int main(void)                                                                             \
	{                                                                                          \
		const struct CMUnitTest none[] = { cmocka_unit_test(no_card) };                    \
		return fake_cards("fake_rt.so", true)                                              \
			       ? cmocka_run_group_tests(tests, prepare, tidy)                      \
			       : cmocka_run_group_tests(none, NULL, NULL);                         \
	}

#endif
