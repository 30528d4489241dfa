/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_tiles.c - attention on the matrix units of each kind of card, against float64. The
 * stand-in for a card runs the kernels' text for it with each instruction as the vendor's document
 * defines it (drivers/fake_tiles.h), so fragments with a wrong layout give wrong numbers here.
 * HS_TILES names cards: those only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "dev/dev.h"
#include "support/cards.h"
#include "support/kernel_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct card {
	const char *name, *spec, *variable, *value;
	enum dtype from; /* the first of bfloat16 and float16 that has matrix units */
} cards[] = {
	{ "sm_86", "cuda:0", "FAKE_RT", "arch=86 volta", DT_BF16 },
	{ "sm_75", "cuda:0", "FAKE_RT", "arch=75 volta", DT_F16 },
	{ "sm_70", "cuda:0", "FAKE_RT", "arch=70 volta", DT_F16 },
	{ "gfx908", "hip:0", "FAKE_HIP", "gfx908", DT_BF16 },
	{ "gfx90a", "hip:0", "FAKE_HIP", "gfx90a:sramecc+", DT_BF16 },
	{ "gfx1100", "hip:0", "FAKE_HIP", "gfx1100", DT_BF16 },
	{ "gfx1200", "hip:0", "FAKE_HIP", "gfx1200", DT_BF16 },
};

static int run(const struct card *c)
{
	struct err e = { 0 };
	struct dev *d;
	int failed = 0;
	setenv(c->variable, c->value, 1);
	if (dev_open(c->spec, &d, &e) < 0) {
		print_error("FAIL %s: %s\n", c->name, e.msg);
		return 1;
	}
	for (enum dtype t = c->from; t <= DT_F16; t++)
		for (int back = 0; back < 2; back++) {
			struct tensors ts;
			tensors_init(&ts, d, rng_fold(1, t));
			(back ? case_attn_bwd : case_attn_fwd)(&ts, t);
			tensors_release(&ts);
			print_message("%-8s attn_%s %-8s %s (error %.2f of tolerance, %s)\n",
				      c->name, back ? "bwd" : "fwd", dtype_name(t),
				      ts.failed ? "FAIL" : "ok", ts.worst, ts.worst_of);
			failed += ts.failed;
		}
	dev_close(d);
	unsetenv(c->variable);
	return failed;
}

static void every_card(void **state)
{
	const char *only = getenv("HS_TILES");
	int failed = 0;
	(void)state;
	for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
		if (!only || strstr(only, cards[i].name))
			failed += run(&cards[i]);
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_card) };
	if (!fake_cards("fake_rt.so", true))
		return 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
