/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_memory.c - every allocation of src/file fails once: an error that says so, nothing
 * leaked, nothing half written. */
#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/gguf_write.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>

typedef int (*op_fn)(const char *path, struct err *e);

/* Lets the 1st, 2nd, ... allocation fail until the operation gets through. */
static void starve(const char *what, op_fn op, const char *path)
{
	int n = 0, rc = -1;
	while (rc < 0) {
		struct err e = { 0 };
		mem_fail_after((uint64_t)++n);
		rc = op(path, &e);
		mem_fail_after(0);
		if (rc < 0 && rc != ERR_NOMEM)
			fail_msg("%s, allocation %d: %s", what, n, e.msg);
		assert_true(n < 100000);
	}
	print_message("# %s: %d allocations failed one by one\n", what, n - 1);
	assert_true(n > 1);
}

static int open_model(const char *path, struct err *e)
{
	struct model_file *f = NULL;
	TRY(model_file_open(path, &f, e));
	model_file_close(f);
	return 0;
}

static int rows(void *ctx, const char *name, int64_t row0, int64_t n, float *dst, struct err *e)
{
	return model_file_read_f32(ctx, model_file_find(ctx, name), row0, n, dst, e);
}

static struct model_file *source;

static int write_gguf(const char *path, struct err *e)
{
	return gguf_write_model(path, source, GGUF_OUT_Q8_0, rows, source, e);
}

static int copy_adapter(const char *path, struct err *e)
{
	struct arena a = ARENA_INIT;
	struct peft_adapter ad;
	int rc = peft_read(path, &a, &ad, e);
	if (!rc)
		rc = peft_write(scratch("adapter"), &ad, e);
	arena_release(&a);
	return rc;
}

static void test_starved(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct stat st;
	static const char *const models[] = { "smollm2", "llama2-nf4", "smollm2-nf4-dq",
					      "llama31-f16.gguf", "llama31" };
	assert_int_equal(dir_make(scratch("adapter"), &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(models); i++)
		starve(models[i], open_model, repository("tests/golden/models/%s", models[i]));
	for (size_t i = 3; i < ARRAY_LEN(models); i++) {
		assert_int_equal(model_file_open(repository("tests/golden/models/%s", models[i]),
						 &source, &e),
				 0);
		starve("writing a GGUF", write_gguf, scratch("out.gguf"));
		assert_int_not_equal(stat(scratch("out.gguf.tmp"), &st), 0);
		model_file_close(source);
	}
	starve("an adapter", copy_adapter, repository("tests/golden/models/train-lora/init"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_starved) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
