/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - what the tests of the public interface share: errors that are looked at, and a small
 * model with its data. */
#ifndef HS_TESTS_SUPPORT_API_H
#define HS_TESTS_SUPPORT_API_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <heteroshard.h>

#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, e.text);                                         \
	} while (0)

/* One line that says so. */
static inline void expect(int rc, const hs_error *e, const char *says)
{
	if (rc >= 0 || !strstr(e->text, says) || strchr(e->text, '\n') || e->code != rc)
		fail_msg("'%s' was expected, not %d '%s'", says, rc, rc < 0 ? e->text : "");
}

/* Six blocks, for samples of six numbers and five classes. */
#define SMALL                                                                                      \
	"input 6\nlinear 24; gelu; dropout 0.25\n"                                                 \
	"residual { layer_norm; linear 48; silu; linear 24 }\n"                                    \
	"tanh; linear 5; cross_entropy"

static inline int small_sample(void *ctx, uint64_t i, void *x, void *y)
{
	(void)ctx;
	for (int k = 0; k < 6; k++)
		((float *)x)[k] = (float)sin(12.9898 * (double)i + 3.7 * k);
	*(int32_t *)y = i % 7 == 3 ? -100 : (int32_t)(i % 5);
	return 0;
}

#endif
