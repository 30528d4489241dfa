/* SPDX-License-Identifier: Apache-2.0 */
/* Base 32: the examples of RFC 4648 (section 10), every length there and back, and that each text
 * but the one that is written is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/base32.h"
#include "base/mem.h"

static void examples(void **state)
{
	(void)state;
	static const char *const want[] = { "",        "my",       "mzxq",      "mzxw6",
					    "mzxw6yq", "mzxw6ytb", "mzxw6ytboi" };
	char out[BASE32_CHARS(6) + 1];
	for (size_t n = 0; n < ARRAY_LEN(want); n++) {
		base32_write((const uint8_t *)"foobar", n, out);
		assert_string_equal(out, want[n]);
		assert_int_equal(strlen(out), BASE32_CHARS(n));
	}
}

static void there_and_back(void **state)
{
	(void)state;
	uint8_t in[40], back[40];
	char text[BASE32_CHARS(40) + 2];
	for (size_t n = 0; n <= sizeof in; n++) {
		for (size_t i = 0; i < n; i++)
			in[i] = (uint8_t)(i * 151 + n * 29);
		base32_write(in, n, text);
		assert_true(base32_read(text, back, n));
		assert_memory_equal(in, back, n);
		assert_false(base32_read(text, back, n + 1));
		size_t len = strlen(text);
		for (size_t i = 0; i < len; i++)
			for (int c = 1; c < 256; c++) {
				char old = text[i];
				text[i] = (char)c;
				bool same = base32_read(text, back, n) && !memcmp(in, back, n);
				assert_true(same == (text[i] == old));
				text[i] = old;
			}
		memcpy(text + len, "a", 2);
		assert_false(base32_read(text, back, n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples),
		cmocka_unit_test(there_and_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
