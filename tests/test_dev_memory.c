/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_memory.c - buffers, transfers, capabilities and errors of every backend; the null
 * device's counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "dev/dev_null.h"
#include "support/cards.h"

#include <stdio.h>
#include <string.h>

/* The address sanitizer ends the program at sizes it finds absurd, unless told that the caller
 * copes. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static void check_device(const char *spec)
{
	struct err e = { 0 };
	struct dev *d;
	if (dev_open(spec, &d, &e) < 0)
		fail_msg("%s", e.msg);
	struct dev_caps caps;
	if (dev_caps(d, &caps, &e) < 0)
		fail_msg("%s", e.msg);
	print_message("%s: %s, %s, %s, %d units, %llu of %llu MiB free, bf16 %d, f16 %d\n", spec,
		      caps.name, caps.vendor, caps.driver, caps.units,
		      (unsigned long long)caps.mem_free >> 20,
		      (unsigned long long)caps.mem_total >> 20, caps.bf16, caps.f16);
	assert_true(caps.name[0] && caps.units > 0);
	assert_true(caps.mem_total > 0 && caps.mem_free > 0 && caps.mem_free <= caps.mem_total);

	/* small and mapped buffers, odd offsets and lengths, copies within one buffer that overlap
	 * nowhere */
	static const size_t sizes[] = {
		0, 1, 63, 4097, ((size_t)1 << 20) + 3, ((size_t)9 << 20) + 1
	};
	const uint64_t used = d->mem_used;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const size_t n = sizes[i];
		struct dev_buf *b, *c;
		uint8_t *in = mem_alloc(n + 1), *out = mem_alloc(n + 1);
		for (size_t j = 0; j < n; j++)
			in[j] = (uint8_t)(j * 7 + j / 251);
		assert_int_equal(dev_alloc(d, n, &b, &e), 0);
		assert_int_equal(dev_alloc(d, n, &c, &e), 0);
		if (b->host)
			assert_int_equal((uintptr_t)b->host % 64, 0);
		assert_int_equal(dev_upload(DEV_REF(b, 0), in, n, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(c, 0), DEV_REF(b, 0), n, &e), 0);
		assert_int_equal(dev_zero(DEV_REF(b, 0), n, &e), 0);
		assert_int_equal(dev_download(out, DEV_REF(c, 0), n, &e), 0);
		assert_int_equal(dev_sync(d, &e), 0);
		assert_memory_equal(in, out, n);
		assert_int_equal(dev_download(out, DEV_REF(b, 0), n, &e), 0);
		for (size_t j = 0; j < n; j++)
			assert_int_equal(out[j], 0);
		if (n > 100) {
			assert_int_equal(dev_upload(DEV_REF(b, 17), in, n - 50, &e), 0);
			assert_int_equal(dev_download(out, DEV_REF(b, 17), n - 50, &e), 0);
			assert_memory_equal(in, out, n - 50);
		}
		/* outside the buffer */
		assert_int_equal(dev_upload(DEV_REF(b, 1), in, n + 1, &e), ERR_INTERNAL);
		assert_int_equal(dev_download(out, DEV_REF(b, n + 2), 1, &e), ERR_INTERNAL);
		assert_int_equal(dev_copy(DEV_REF(c, 0), DEV_NONE, 1, &e), ERR_INTERNAL);
		assert_int_equal(dev_zero(DEV_REF(b, SIZE_MAX), 2, &e), ERR_INTERNAL);
		dev_free(b);
		dev_free(c);
		mem_free(in);
		mem_free(out);
	}
	assert_int_equal(d->mem_used, used);
	assert_true(d->mem_peak >= 2 * sizes[ARRAY_LEN(sizes) - 1]);

	/* a download in the background brings the bytes that were there when it began, whatever is
	 * launched before it ends */
	for (size_t i = 1; i < ARRAY_LEN(sizes) + 1; i++) {
		const size_t n = i < ARRAY_LEN(sizes) ? sizes[i] : ((size_t)21 << 20) + 5;
		struct dev_buf *b, *c;
		uint8_t *in = mem_alloc(n), *other = mem_alloc(n), *out = mem_alloc(n),
			*second = mem_alloc(n);
		for (size_t j = 0; j < n; j++) {
			in[j] = (uint8_t)(j * 11 + j / 253);
			other[j] = (uint8_t)~in[j];
			out[j] = second[j] = 0;
		}
		assert_int_equal(dev_alloc(d, n, &b, &e), 0);
		assert_int_equal(dev_alloc(d, n, &c, &e), 0);
		assert_int_equal(dev_upload(DEV_REF(c, 0), in, n, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(b, 0), DEV_REF(c, 0), n, &e), 0);
		assert_int_equal(dev_download_begin(out, DEV_REF(b, 0), n, &e), 0);
		assert_int_equal(dev_zero(DEV_REF(b, 0), n, &e), 0);
		assert_int_equal(dev_upload(DEV_REF(b, 0), other, n, &e), 0);
		assert_int_equal(dev_download_end(d, &e), 0);
		assert_memory_equal(in, out, n);
		/* a second download completes the first one; so does freeing its buffer */
		memset(out, 0, n);
		assert_int_equal(dev_download_begin(out, DEV_REF(b, 0), n, &e), 0);
		assert_int_equal(dev_download_begin(second, DEV_REF(c, 0), n, &e), 0);
		assert_memory_equal(other, out, n);
		dev_free(c);
		int busy;
		while ((busy = dev_busy(d, &e)) > 0)
			;
		assert_int_equal(busy, 0);
		assert_int_equal(dev_download_end(d, &e), 0);
		assert_memory_equal(in, second, n);
		assert_int_equal(dev_download_end(d, &e), 0);
		assert_int_equal(dev_download_begin(out, DEV_REF(b, n), 1, &e), ERR_INTERNAL);
		dev_free(b);
		mem_free(in);
		mem_free(other);
		mem_free(out);
		mem_free(second);
	}

	/* far more than there is: an error, and nothing counted */
	struct dev_buf *huge = NULL;
	err_clear(&e);
	assert_true(dev_alloc(d, (size_t)1 << 60, &huge, &e) < 0);
	assert_null(huge);
	assert_true(e.msg[0] != 0);
	assert_int_equal(d->mem_used, used);

	/* the host runs out */
	mem_fail_after(1);
	assert_int_equal(dev_alloc(d, 100, &huge, &e), ERR_NOMEM);
	mem_fail_after(0);
	dev_close(d);
	dev_close(NULL);
	dev_free(NULL);
}

static void test_devices(void **state)
{
	(void)state;
	for (size_t b = 0; backends[b]; b++) {
		struct err e = { 0 };
		int n = backends[b]->count(&e);
		if (n <= 0)
			print_message("%s: skipped (%s)\n", backends[b]->name,
				      n < 0 ? e.msg : "no such device");
		for (int i = 0; i < n; i++) {
			char spec[32];
			snprintf(spec, sizeof spec, "%s:%d", backends[b]->name, i);
			check_device(spec);
		}
	}
}

static void test_open(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"",   "nosuch", "cpu:", "cpu:x", "cpu:-1", "cpu:7", "cpu:99999999999999999999",
		":0", "cpu:0x"
	};
	struct dev *d = NULL;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };
		assert_true(dev_open(bad[i], &d, &e) < 0);
		assert_non_null(strstr(e.msg, "device '"));
		assert_null(d);
	}
	/* each allocation of opening fails once; what was taken is given back (address
	 * sanitizer) */
	for (int n = 1; n < 8; n++) {
		struct err e = { 0 };
		mem_fail_after((uint64_t)n);
		if (dev_open("cpu", &d, &e) == 0)
			dev_close(d);
		else
			assert_int_equal(e.code, ERR_NOMEM);
		mem_fail_after(0);
		d = NULL;
	}
}

static void test_launch_errors(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d;
	assert_int_equal(dev_open("cpu", &d, &e), 0);
	union dev_arg none[32] = { 0 };
	assert_false(dev_has(d, K_axpby, DT_F16));
	assert_int_equal(dev_launch(d, K_axpby, DT_F16, none, &e), ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "axpby"));
	/* nothing to do is no error */
	assert_int_equal(dev_launch(d, K_axpby, DT_F32, none, &e), 0);
	assert_int_equal(dev_launch(d, K_embed_fwd, DT_BF16, none, &e), 0);
	struct dev_gemm g = { .alpha = 1 };
	assert_int_equal(dev_gemm(d, &g, &e), 0);
	g = (struct dev_gemm){ .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 1 };
	assert_int_equal(dev_gemm(d, &g, &e), ERR_INTERNAL);
	dev_close(d);
}

static void test_null(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d, *cpu;
	struct dev_buf *b;
	uint8_t bytes[64] = { 1 };
	assert_int_equal(dev_open("null", &d, &e), 0);
	assert_int_equal(dev_open("cpu", &cpu, &e), 0);
	assert_null(dev_null_counts(cpu));
	assert_int_equal(dev_alloc(d, 1 << 16, &b, &e), 0);
	assert_int_equal(dev_upload(DEV_REF(b, 0), bytes, 64, &e), 0);
	assert_int_equal(dev_download(bytes, DEV_REF(b, 0), 32, &e), 0);
	struct dev_gemm g = { .m = 3,
			      .n = 5,
			      .k = 7,
			      .a = { b, 0 },
			      .b = { b, 0 },
			      .c = { b, 0 },
			      .lda = 7,
			      .ldb = 5,
			      .ldc = 5,
			      .alpha = 1 };
	assert_int_equal(dev_gemm(d, &g, &e), 0);
	union dev_arg none[32] = { 0 };
	assert_int_equal(dev_launch(d, K_axpby, DT_F32, none, &e), 0);
	struct dev_null_counts *c = dev_null_counts(d);
	assert_non_null(c);
	assert_int_equal(c->gemm_flops, 2 * 3 * 5 * 7);
	assert_int_equal(c->gemms, 1);
	assert_int_equal(c->upload_bytes, 64);
	assert_int_equal(c->download_bytes, 32);
	assert_int_equal(c->launches, 1);
	assert_int_equal(c->kernel[K_axpby], 1);
	dev_free(b);
	dev_close(d);
	dev_close(cpu);
}

int main(void)
{
	fake_cards("fake_rt.so", false);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_launch_errors),
		cmocka_unit_test(test_null),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
