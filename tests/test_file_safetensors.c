/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_safetensors.c - reading what the reference wrote, writing it byte for byte, refusing
 * what is damaged or hostile. */
#include "base/buf.h"
#include "base/err.h"
#include "file/safetensors.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* A file from a header and n bytes of data; `length` is what the first 8 bytes say, -1: the
 * truth. */
static const char *make(const char *header, int64_t length, size_t n)
{
	struct buf b = BUF_INIT;
	uint64_t len = length < 0 ? strlen(header) : (uint64_t)length;
	for (int i = 0; i < 8; i++)
		buf_addc(&b, (char)(len >> (8 * i)));
	buf_adds(&b, header);
	for (size_t i = 0; i < n; i++)
		buf_addc(&b, (char)i);
	const char *p = scratch("made.safetensors");
	scratch_write(p, b.p, b.n);
	buf_release(&b);
	return p;
}

static void refuse(const char *header, int64_t length, size_t n, int code, const char *word)
{
	struct err e = { 0 };
	struct st_file *f = NULL;
	int rc = st_open(make(header, length, n), &f, &e);
	print_message("# %s\n", e.msg);
	assert_int_equal(rc, code);
	assert_null(f);
	if (!strstr(e.msg, word))
		fail_msg("'%s' does not mention '%s'", e.msg, word);
}

static void test_good(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct st_file *f = NULL;
	const char *p =
		make("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[3,11]},\"__"
		     "metadata__\":{\"who\":\"me\"},"
		     "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
		     "\"none\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[3,3]}}   ",
		     -1, 11);
	assert_int_equal(st_open(p, &f, &e), 0);
	assert_int_equal(st_count(f), 3);
	assert_string_equal(st_get(f, 0)->name, "a");
	assert_string_equal(st_get(f, 2)->name, "b");
	assert_null(st_get(f, 3));
	assert_null(st_find(f, "c"));
	const struct st_tensor *t = st_find(f, "b");
	assert_int_equal(t->ndim, 2);
	assert_int_equal(t->shape[0], 2);
	assert_int_equal(t->bytes, 8);
	assert_int_equal(((const uint8_t *)t->data)[0], 3);
	st_drop(f, t);
	assert_int_equal(((const uint8_t *)t->data)[7], 10);
	assert_string_equal(json_string_value(json_object_get(st_metadata(f), "who")), "me");
	st_close(f);
	assert_int_equal(st_open(make("{}", -1, 0), &f, &e), 0);
	assert_int_equal(st_count(f), 0);
	assert_null(st_metadata(f));
	st_close(f);
}

#define T(dtype, shape, offsets)                                                                   \
	"{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_refused(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct st_file *f = NULL;
	refuse("{}", 3, 0, ERR_INPUT, "truncated");
	refuse("{}", 100000001, 0, ERR_INPUT, "not a safetensors file");
	refuse("{}", INT64_MAX, 0, ERR_INPUT, "not a safetensors file");
	refuse("{\"a\":", -1, 0, ERR_INPUT, "JSON");
	refuse("[]", -1, 0, ERR_INPUT, "object");
	refuse(T("F32", "[2]", "[0,8]"), -1, 7, ERR_INPUT, "truncated");
	refuse(T("F32", "[2]", "[0,8]"), -1, 9, ERR_INPUT, "after the last tensor");
	refuse(T("F32", "[2]", "[0,7]"), -1, 7, ERR_INPUT, "needs 8");
	refuse(T("F32", "[2]", "[8,0]"), -1, 8, ERR_INPUT, "not a range");
	refuse(T("F32", "[2]", "[-8,0]"), -1, 8, ERR_INPUT, "not a range");
	refuse(T("F32", "[2]", "[4,12]"), -1, 12, ERR_INPUT, "gap");
	refuse(T("F32", "[2]", "[9223372036854775800,9223372036854775807]"), -1, 8, ERR_INPUT,
	       "needs 8");
	refuse(T("F32", "[2]", "[0,99999999999999999999]"), -1, 8, ERR_INPUT, "JSON");
	refuse(T("F32", "[2]", "[0]"), -1, 8, ERR_INPUT, "data_offsets");
	refuse(T("F32", "[2]", "[0,8.0]"), -1, 8, ERR_INPUT, "data_offsets");
	refuse(T("F32", "[4294967296,4294967296]", "[0,8]"), -1, 8, ERR_INPUT, "too large");
	refuse(T("F32", "[4611686018427387904]", "[0,0]"), -1, 0, ERR_INPUT, "too large");
	refuse(T("F32", "[-2]", "[0,8]"), -1, 8, ERR_INPUT, "whole numbers");
	refuse(T("F32", "[2.5]", "[0,8]"), -1, 8, ERR_INPUT, "whole numbers");
	refuse(T("F32", "2", "[0,8]"), -1, 8, ERR_INPUT, "no shape");
	refuse(T("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), -1, 8, ERR_UNSUPPORTED, "9 dimensions");
	refuse(T("F8_E4M3", "[8]", "[0,8]"), -1, 8, ERR_UNSUPPORTED, "F8_E4M3");
	refuse(T("Q7", "[8]", "[0,8]"), -1, 8, ERR_UNSUPPORTED, "Q7");
	refuse("{\"a\":7}", -1, 0, ERR_INPUT, "no dtype");
	refuse("{\"__metadata__\":{\"a\":1}}", -1, 0, ERR_INPUT, "__metadata__");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":"
	       "\"U8\",\"shape\":[4],\"data_"
	       "offsets\":[2,6]}}",
	       -1, 6, ERR_INPUT, "inside another");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":"
	       "\"U8\",\"shape\":[4],\"data_"
	       "offsets\":[4,8]}}",
	       -1, 8, ERR_INPUT, "duplicate");
	scratch_write(scratch("short"), "1234567", 7);
	assert_int_equal(st_open(scratch("short"), &f, &e), ERR_INPUT);
	scratch_write(scratch("empty"), "", 0);
	assert_int_equal(st_open(scratch("empty"), &f, &e), ERR_INPUT);
	assert_int_equal(st_open(scratch("missing"), &f, &e), ERR_IO);
	assert_int_equal(st_open(scratch("."), &f, &e), ERR_INPUT); /* a folder */
	/* a header of four million empty lists */
	struct buf many = BUF_INIT;
	buf_adds(&many, "{\"a\":[");
	for (int i = 0; i < 4000000; i++)
		buf_adds(&many, "[],");
	buf_adds(&many, "[]]}");
	refuse(many.p, -1, 0, ERR_INPUT, "JSON values");
	buf_release(&many);
}

static int from_file(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		     struct err *e)
{
	(void)e;
	memcpy(dst, (const char *)st_find(ctx, t->name)->data + off, n);
	return 0;
}

static void test_reference(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct st_file *f = NULL;
	struct st_spec spec[16];
	const char *golden = repository("tests/golden/file/reference.safetensors"),
		   *out = scratch("again.safetensors");
	assert_int_equal(st_open(golden, &f, &e), 0);
	size_t n = st_count(f);
	for (size_t i = 0; i < n; i++) { /* handed over in another order */
		const struct st_tensor *t = st_get(f, n - 1 - i);
		spec[i] = (struct st_spec){ t->name, t->dtype, t->ndim, { 0 }, NULL };
		memcpy(spec[i].shape, t->shape, sizeof t->shape);
	}
	assert_int_equal(st_write(out, spec, n, st_metadata(f), from_file, f, &e), 0);
	struct buf a = BUF_INIT, b = BUF_INIT;
	assert_int_equal(buf_read_file(&a, golden, 0, &e), 0);
	assert_int_equal(buf_read_file(&b, out, 0, &e), 0);
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.p, b.p, a.n);
	buf_release(&a);
	buf_release(&b);
	st_close(f);
}

/* Counts up, and checks that it is asked for whole rows in order. */
static int counting(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		    struct err *e)
{
	uint64_t row = (uint64_t)t->shape[1] * 4, *at = ctx;
	if (off != *at || off % row || n % row)
		return err_set(e, ERR_INTERNAL, "asked for [%llu, +%llu)", (unsigned long long)off,
			       (unsigned long long)n);
	for (uint64_t i = 0; i < n / 4; i++)
		((uint32_t *)dst)[i] = (uint32_t)(off / 4 + i);
	*at += n;
	return 0;
}

static int failing(void *ctx, const struct st_spec *t, uint64_t off, uint64_t n, void *dst,
		   struct err *e)
{
	(void)ctx, (void)t, (void)off, (void)n, (void)dst;
	return err_set(e, ERR_DEVICE, "no");
}

static void test_stream(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct st_file *f = NULL;
	uint64_t at = 0;
	struct st_spec spec = { "w", DT_I32, 2, { 3001, 1009 }, NULL };
	const char *out = scratch("stream.safetensors");
	struct stat st;
	assert_int_equal(st_write(out, &spec, 1, NULL, counting, &at, &e), 0);
	assert_int_equal(st_open(out, &f, &e), 0);
	const uint32_t *p = st_find(f, "w")->data;
	for (uint32_t i = 0; i < 3001 * 1009; i++)
		if (p[i] != i)
			fail_msg("element %u is %u", i, p[i]);
	st_close(f);
	assert_int_equal(st_write(out, &spec, 1, NULL, failing, NULL, &e), ERR_DEVICE);
	assert_int_equal(st_open(out, &f, &e), 0); /* the old one stays */
	st_close(f);
	struct rlimit old, small;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 5 << 20;
	setrlimit(RLIMIT_FSIZE, &small);
	at = 0;
	int rc = st_write(out, &spec, 1, NULL, counting, &at, &e);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, ERR_IO);
	assert_int_equal(st_open(out, &f, &e), 0);
	st_close(f);
	assert_int_not_equal(stat(scratch("stream.safetensors.tmp"), &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_reference),
		cmocka_unit_test(test_stream),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
