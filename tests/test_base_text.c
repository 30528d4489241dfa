/* SPDX-License-Identifier: Apache-2.0 */
/* Control characters that a terminal would obey never reach it: every control of C0 and C1, every
 * mark of direction, and all bytes that are not UTF-8, in texts, errors, log lines, words of peers
 * and JSON. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/wire.h"
#include "proto/protocol.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <cmocka.h>

static bool bad(uint32_t c)
{
	static const uint32_t marks[] = { 0x61c,  0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202b,
					  0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069 };
	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		if (c == marks[i])
			return true;
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Checks with utf8proc, a reader of UTF-8 other than ours. */
static void check_safe(const char *s, size_t n, const char *allowed)
{
	for (size_t at = 0; at < n;) {
		utf8proc_int32_t c;
		utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s + at,
						      (utf8proc_ssize_t)(n - at), &c);
		if (k <= 0 || (bad((uint32_t)c) && !(c && c < 0x80 && strchr(allowed, c))))
			fail_msg("byte 0x%02x at %zu of %zu", (unsigned char)s[at], at, n);
		at += (size_t)k;
	}
}

static void every_character(void **state)
{
	(void)state;
	static const enum text_pass pass[] = { TEXT_LINE, TEXT_LINES, TEXT_PROSE };
	static const char *const allowed[] = { "", "\n\t", "\n\t" };
	for (uint32_t c = 1; c < 0x110000; c++) {
		utf8proc_uint8_t utf8[4];
		utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, utf8);
		if (n <= 0 || (c >= 0xd800 && c < 0xe000))
			continue;
		for (size_t p = 0; p < ARRAY_LEN(pass); p++) {
			char s[8] = "a";
			memcpy(s + 1, utf8, (size_t)n);
			s[n + 1] = 'b';
			size_t len = text_safe(s, (size_t)n + 2, pass[p]);
			check_safe(s, len, allowed[p]);
			assert_int_equal(s[0], 'a');
			assert_int_equal(s[len - 1], 'b');
			/* letters, signs and emoji stay */
			if (utf8proc_category((utf8proc_int32_t)c) <= UTF8PROC_CATEGORY_ZS &&
			    utf8proc_category((utf8proc_int32_t)c) > 0)
				assert_int_equal(len, n + 2);
		}
	}
}

/* Sequences of four bytes, with bytes of every kind: the output is safe, is not longer than the
 * input, and does not change when it is made safe again. */
static void every_sequence_of_bytes(void **state)
{
	(void)state;
	static const unsigned char byte[] = { 0x09, 0x0a, 0x1b, 0x41, 0x7f, 0x80, 0x8e, 0x9b,
					      0xa0, 0xae, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0,
					      0xe2, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff };
	size_t k = ARRAY_LEN(byte);
	for (size_t i = 0; i < k * k * k * k; i++) {
		char s[5] = { (char)byte[i % k], (char)byte[i / k % k], (char)byte[i / k / k % k],
			      (char)byte[i / k / k / k % k] };
		size_t n = text_safe(s, 4, TEXT_LINE);
		assert_true(n <= 4 && s[n] == 0);
		check_safe(s, n, "");
		assert_int_equal(text_safe(s, n, TEXT_LINE), n);
	}
}

static const char nasty[] = "a\033[31mb\xc2\x9b"
			    "31mc\xe2\x80\xae"
			    "d\xff\xc2"
			    "e\nf\r\x7f";

static char logged[256];

static void keep_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(logged, sizeof logged, "%s", line);
}

static void errors_and_log_lines(void **state)
{
	(void)state;
	static const char want[] = "a?[31mb?31mc?d??e f ?";
	struct err e = { 0 };
	err_set(&e, ERR_INPUT, "%s", nasty);
	assert_string_equal(e.msg, want);
	err_set(&e, ERR_INPUT, "x");
	err_prefix(&e, "%s", nasty);
	check_safe(e.msg, strlen(e.msg), "");
	err_sys(&e, ENOENT, "%s", nasty);
	check_safe(e.msg, strlen(e.msg), "");
	/* a message that is cut inside a character */
	char text[sizeof e.msg + 16];
	for (size_t cut = 0; cut < 4; cut++) {
		memset(text, 'x', sizeof text);
		for (size_t i = cut; i + 4 < sizeof text; i += 4)
			memcpy(text + i, "\xf0\x9f\x98\x80", 4);
		text[sizeof text - 1] = 0;
		err_set(&e, ERR_INPUT, "%s", text);
		check_safe(e.msg, strlen(e.msg), "");
	}
	log_set_sink(keep_line, NULL, LOG_INFO);
	log_warn("%s", nasty);
	log_set_sink(NULL, NULL, LOG_INFO);
	assert_string_equal(logged, want);
}

/* The reason of an ABORT, and any other text of a peer. */
static void words_of_peers(void **state)
{
	(void)state;
	unsigned char b[512];
	char text[64];
	struct err why = { 0 }, e = { 0 };
	size_t n;
	struct wire_writer w = wire_write(b, sizeof b);
	wire_put_str(&w, nasty);
	wire_put_u32(&w, 1);
	assert_int_equal(wire_write_end(&w, &n, &e), 0);
	abort_read(b, n, &why);
	check_safe(why.msg, strlen(why.msg), "");
	struct wire_reader r = wire_read(b, n);
	wire_get_str(&r, text, sizeof text);
	check_safe(text, strlen(text), "");
}

/* JSON writes these characters as ASCII escapes, so nothing is lost. */
static void json_says_it_in_ascii(void **state)
{
	(void)state;
	static const char text[] = "a\033\xc2\x9b\xe2\x80\xae\xe2\x80\x8d\xc3\xa9\xf0\x9f\x98\x80";
	struct buf b = BUF_INIT;
	json_quote(&b, text, strlen(text));
	assert_string_equal(b.p, "\"a\\u001b\\u009b\\u202e\xe2\x80\x8d\xc3\xa9\xf0\x9f\x98\x80\"");
	check_safe(b.p, b.n, "");
	json_t *v = json_loadb(b.p, b.n, JSON_DECODE_ANY, NULL);
	assert_string_equal(json_string_value(v), text);
	json_decref(v);
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character),       cmocka_unit_test(every_sequence_of_bytes),
		cmocka_unit_test(errors_and_log_lines),  cmocka_unit_test(words_of_peers),
		cmocka_unit_test(json_says_it_in_ascii),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
