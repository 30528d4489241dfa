/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_drivers.c - drivers that are missing, broken or fail: the other devices stay usable, and
 * messages name the device.
 *
 * The faults come from a stand-in for libOpenCL (tests/drivers/fake_opencl.c). A driver is loaded
 * once for a process, so each case is a call of the program (HS_BIN, set by scripts/run-tests.sh)
 * or a process of its own. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "dev/dev_watch.h"
#include "support/tiny.h"
#include "train/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char fake[4096], empty[4096];
static bool have_fake; /* the stand-in is built and there is a device behind it */

/* Runs `command` with its standard error in the text too; returns its exit status. */
static int shell(struct buf *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int shell(struct buf *text, const char *fmt, ...)
{
	char command[9000], piece[4096];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(command, sizeof command - 8, fmt, ap);
	va_end(ap);
	assert_true(n > 0 && n < (int)sizeof command - 8);
	strcat(command, " 2>&1");
	FILE *f = popen(command, "r");
	assert_non_null(f);
	buf_init(text);
	for (size_t got; (got = fread(piece, 1, sizeof piece, f)) > 0;)
		buf_add(text, piece, got);
	buf_add(text, "", 0);
	int status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void to_stderr(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	fprintf(stderr, "%s\n", line);
}

static void expect(const struct buf *text, const char *word, const char *where)
{
	if (!strstr(text->p, word))
		fail_msg("%s: '%s' is not in:\n%s", where, word, text->p);
}

static void broken_drivers_hide_nobody(void **state)
{
	static const struct {
		const char *library, *faults, *says;
	} row[] = {
		{ empty, "", "has no function clGetPlatformIDs" },
		{ "/dev/null", "", "/dev/null cannot be opened" },
		{ "/nonexistent.so", "", "is not installed" },
		{ fake, "platforms", "CL_OUT_OF_HOST_MEMORY" },
		{ fake, "devices", "CL_INVALID_PLATFORM" },
		{ fake, "closed", "opencl:0" },
		{ fake, "none", "cpu:0" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct buf text;
		if (row[i].library == fake && !have_fake)
			continue;
		int status = shell(&text, "HS_OPENCL_LIBRARY='%s' FAKE_CL='%s' \"$HS_BIN\" devices",
				   row[i].library, row[i].faults);
		assert_int_equal(status, 0);
		expect(&text, "cpu:0", row[i].faults);
		expect(&text, row[i].says, row[i].library);
		buf_release(&text);
	}
	if (!have_fake)
		printf("opencl: the cases with a device are skipped (no OpenCL device)\n");
}

static void one_broken_platform_hides_no_other(void **state)
{
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	/* a folder of driver names: one that names no driver, and those of this machine */
	int status =
		shell(&text, "d=$(mktemp -d) && cp /etc/OpenCL/vendors/*.icd $d && echo /dev/null "
			     ">$d/aaa.icd && "
			     "OCL_ICD_VENDORS=$d \"$HS_BIN\" devices; s=$?; rm -r $d; exit $s");
	assert_int_equal(status, 0);
	expect(&text, "opencl:0", "a broken platform beside a sound one");
	buf_release(&text);
}

/* What `run` says on standard error in a process with these settings ("NAME=value", ended by NULL);
 * returns its exit status. */
static int apart(const char *const *settings, void (*run)(void), struct buf *text)
{
	char piece[4096];
	int fd[2], status;
	assert_int_equal(pipe(fd), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd[1], 2);
		for (; *settings; settings++)
			putenv((char *)(uintptr_t)*settings);
		log_set_sink(to_stderr, NULL, LOG_WARN);
		run();
		_exit(0);
	}
	close(fd[1]);
	buf_init(text);
	for (ssize_t got; (got = read(fd[0], piece, sizeof piece)) > 0;)
		buf_add(text, piece, (size_t)got);
	close(fd[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Prints the error of the first call that fails. */
#define SAY(call)                                                                                  \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			fprintf(stderr, "%s\n", e.msg);                                            \
			return;                                                                    \
		}                                                                                  \
	} while (0)

static void multiply_once(int64_t side, int times)
{
	struct err e = { 0 };
	struct dev *d;
	struct dev_buf *b;
	float out;
	SAY(dev_open("opencl:0", &d, &e));
	SAY(dev_alloc(d, (size_t)side * 4, &b, &e));
	SAY(dev_zero(DEV_REF(b, 0), b->size, &e));
	/* with leading dimensions of 0 all rows are the same one: the product may have any size and
	 * takes no more memory */
	const struct dev_gemm g = { .m = side,
				    .n = side,
				    .k = side,
				    .a = DEV_REF(b, 0),
				    .b = DEV_REF(b, 0),
				    .c = DEV_REF(b, 0),
				    .ab_dtype = DT_F32,
				    .c_dtype = DT_F32,
				    .alpha = 1 };
	for (int i = 0; i < times; i++)
		SAY(dev_gemm(d, &g, &e));
	SAY(dev_sync(d, &e));
	SAY(dev_download(&out, DEV_REF(b, 0), 4, &e));
	fprintf(stderr, "nothing failed\n");
	dev_free(b);
	dev_close(d);
}

static void end_here(const char *line)
{
	fprintf(stderr, "%s\n", line);
	_exit(1);
}

static void multiply(void) { multiply_once(32, 40); }
static void multiply_for_hours(void)
{
	dev_watch_on_hang(end_here);
	multiply_once(1 << 15, 1);
}

static char with_fake[4200];

static void a_lost_device_is_named(void **state)
{
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	apart((const char *const[]){ with_fake, "FAKE_CL=lost=1000", NULL }, multiply, &text);
	expect(&text, "nothing failed", "a device that stays");
	buf_release(&text);
	static const char *const when[] = { "FAKE_CL=lost=1", "FAKE_CL=lost=20",
					    "FAKE_CL=lost=40" };
	for (size_t i = 0; i < ARRAY_LEN(when); i++) {
		assert_int_equal(
			apart((const char *const[]){ with_fake, when[i], NULL }, multiply, &text),
			0);
		expect(&text, "opencl:0 (", when[i]);
		expect(&text, "is lost (", when[i]);
		buf_release(&text);
	}
}

/* A folder for what is kept of compilers and checks. */
static char cache[] = "/tmp/hs-drivers-XXXXXX", own[64];

static void forget_checks(void)
{
	struct buf text;
	assert_int_equal(shell(&text, "find '%s' -name '*.check' -delete", cache), 0);
	buf_release(&text);
}

static int remove_cache(void **state)
{
	struct buf text;
	(void)state;
	const int rc = shell(&text, "rm -r '%s'", cache);
	buf_release(&text);
	return rc;
}

/* A driver that gives a wrong result for a long product is found when the device is opened, each
 * time: only a right result is kept in the cache. A driver that gives a right result is tested
 * once. */
static void a_driver_that_computes_wrong_is_refused(void **state)
{
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	forget_checks();
	for (int i = 0; i < 2; i++) {
		apart((const char *const[]){ with_fake, own, "FAKE_CL=wrong=49152", NULL },
		      multiply, &text);
		expect(&text, "opencl:0 (", "a wrong product");
		expect(&text, "computes a product of 3x5x49152 wrong, by", "a wrong product");
		buf_release(&text);
	}
	for (int i = 0; i < 2; i++) {
		static const char *const faults[] = { "FAKE_CL=", "FAKE_CL=wrong=49152" };
		apart((const char *const[]){ with_fake, own, faults[i], NULL }, multiply, &text);
		expect(&text, "nothing failed", "a driver that has been checked");
		buf_release(&text);
	}
}

/* Transfers up and down, kernels on what has just come. */
static void double_it(void)
{
	enum { N = 1 << 14, TIMES = 20 };
	static float x[N];
	struct err e = { 0 };
	struct dev *d;
	struct dev_buf *b;
	SAY(dev_open("opencl:0", &d, &e));
	SAY(dev_alloc(d, sizeof x, &b, &e));
	for (int i = 0; i < TIMES; i++) {
		const union dev_arg a[] = { { .b = DEV_REF(b, 0) },
					    { .b = DEV_REF(b, 0) },
					    { .i = N },
					    { .f = 2 },
					    { .f = 0 } };
		for (int k = 0; k < N; k++)
			x[k] = (float)(i + k);
		SAY(dev_upload(DEV_REF(b, 0), x, sizeof x, &e));
		SAY(dev_launch(d, K_axpby, DT_F32, a, &e));
		SAY(dev_download(x, DEV_REF(b, 0), sizeof x, &e));
		for (int k = 0; k < N; k++)
			if (x[k] != 2 * (float)(i + k))
				return end_here("a wrong number");
	}
	fprintf(stderr, "nothing failed\n");
	dev_free(b);
	dev_close(d);
}

/* A driver whose queues do not wait for each other gets all work by one; this is kept too. */
static void queues_that_do_not_wait_are_not_used(void **state)
{
	static const char *const faults[] = { "FAKE_CL=early", "FAKE_CL=deaf" };
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		forget_checks();
		for (int again = 0; again < 2; again++) {
			apart((const char *const[]){ with_fake, own, "HS_OPENCL_AHEAD=1", faults[i],
						     NULL },
			      double_it, &text);
			expect(&text, "nothing failed", faults[i]);
			assert_true(!strstr(text.p, "queues do not wait") ==
				    !strstr(faults[i], "deaf"));
			buf_release(&text);
		}
	}
}

static void a_hanging_device_ends_the_process(void **state)
{
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	int status = apart((const char *const[]){ with_fake, "HS_DEVICE_TIMEOUT=1", NULL },
			   multiply_for_hours, &text);
	assert_int_equal(status, 1);
	expect(&text, "opencl:0 (", "a kernel for hours");
	expect(&text, "hangs: ", "a kernel for hours");
	expect(&text, "HS_DEVICE_TIMEOUT", "a kernel for hours");
	buf_release(&text);
}

static void no_memory(void)
{
	struct err e = { 0 };
	struct dev *d;
	struct dev_buf *b;
	SAY(dev_open("opencl:0", &d, &e));
	SAY(dev_alloc(d, 40 << 20, &b, &e));
	SAY(dev_alloc(d, 30 << 20, &b, &e));
	fprintf(stderr, "nothing failed\n");
}

static void memory_that_is_short_is_counted(void **state)
{
	(void)state;
	struct buf text;
	if (!have_fake)
		skip();
	apart((const char *const[]){ with_fake, "FAKE_CL=memory=64", NULL }, no_memory, &text);
	expect(&text, "opencl:0 (", "64 MiB");
	expect(&text, "30 MiB were asked for", "64 MiB");
	expect(&text, "of its 64 MiB this program holds 40", "64 MiB");
	buf_release(&text);
	/* as many drivers do: a quarter of the memory in one buffer */
	apart((const char *const[]){ with_fake, "FAKE_CL=largest=32", NULL }, no_memory, &text);
	expect(&text, "40 MiB were asked for in one buffer", "32 MiB in a buffer");
	expect(&text, "gives one at most 32 of its", "32 MiB in a buffer");
	buf_release(&text);
	apart((const char *const[]){ with_fake, "FAKE_CL=refuse=3", NULL }, no_memory, &text);
	expect(&text, "CL_MEM_OBJECT_ALLOCATION_FAILURE", "a driver that gives no buffer");
	buf_release(&text);
}

static struct tiny tiny;

static void train_a_little(void)
{
	struct err e = { 0 };
	struct train_result r;
	struct config *c = tiny_config(
		&tiny, "run",
		(const char *const[]){ "device=opencl:0", "overwrite_output_dir=true",
				       "val_set_size=0", "eval_steps=0", "micro_batch_size=10",
				       "gradient_accumulation_steps=1", NULL });
	/* the placement is given, so that nothing is measured first: the measurement would run out
	 * of memory too */
	static const char *device[] = { "opencl:0" };
	static const struct placement place = {
		.stages = 1, .chunks = 1, .first = { 0, 2 }, .device = device, .schedule = "1f1b"
	};
	SAY(train_run(c, &(struct train_options){ .place = &place, .act = DT_F32 },
		      &(struct train_sink){ 0 }, &r, &e));
	fprintf(stderr, "nothing failed\n");
}

static void training_without_memory_says_what_to_lower(void **state)
{
	static const char *const words[] = { "step 1", "opencl:0 (", "MiB were asked for",
					     "gradient_checkpointing: true needs",
					     "load_in_4bit: true frees" };
	struct buf text;
	(void)state;
	if (!have_fake)
		skip();
	tiny_make(&tiny, 2, 10);
	apart((const char *const[]){ with_fake, "FAKE_CL=memory=1", NULL }, train_a_little, &text);
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		expect(&text, words[i], "1 MiB");
	buf_release(&text);
	apart((const char *const[]){ with_fake, "FAKE_CL=memory=256", NULL }, train_a_little,
	      &text);
	expect(&text, "nothing failed", "256 MiB");
	buf_release(&text);
	/* in the middle of a job: the line names device, stage and step */
	apart((const char *const[]){ with_fake, "FAKE_CL=lost=300", NULL }, train_a_little, &text);
	expect(&text, "is lost (", "a device lost while training");
	expect(&text, "in step ", "a device lost while training");
	buf_release(&text);
	tiny_remove(&tiny);
}

static int halves = 1;
static void multiply_halves(void)
{
	struct err e = { 0 };
	struct dev *d;
	struct dev_buf *b;
	struct dev_caps caps;
	const uint16_t in[] = { 0x3f80, 0x4000, 0x4040, 0x4080 }; /* 1, 2, 3, 4 */
	float out[4];
	SAY(dev_open("opencl:0", &d, &e));
	SAY(dev_alloc(d, 64, &b, &e));
	SAY(dev_upload(DEV_REF(b, 0), in, sizeof in, &e));
	const struct dev_gemm g = { .m = 2,
				    .n = 2,
				    .k = 2,
				    .lda = 2,
				    .ldb = 2,
				    .ldc = 2,
				    .a = DEV_REF(b, 0),
				    .b = DEV_REF(b, 0),
				    .c = DEV_REF(b, 32),
				    .ab_dtype = DT_BF16,
				    .c_dtype = DT_F32,
				    .alpha = 1 };
	for (int i = 0; i < halves; i++)
		SAY(dev_gemm(d, &g, &e));
	SAY(dev_download(out, DEV_REF(b, 32), sizeof out, &e));
	SAY(dev_caps(d, &caps, &e));
	fprintf(stderr, "%g %g %g %g, bf16 %d\n", (double)out[0], (double)out[1], (double)out[2],
		(double)out[3], caps.bf16);
	dev_free(b);
	dev_close(d);
}

/* A driver that names Intel's extension and does not compile it: plain multiply-adds are used, and
 * a line says so. With sub-groups that no such card has, or when it is turned off, nothing is
 * tried. */
static void matrix_units_that_do_not_work(void **state)
{
	static const char right[] = "7 10 15 22, bf16 0";
	static const struct {
		const char *fault, *off;
		bool warns;
	} row[] = { { "FAKE_CL=intel=8", "HS_OPENCL_MATRIX=1", true },
		    { "FAKE_CL=intel=16", "HS_OPENCL_MATRIX=1", true },
		    { "FAKE_CL=intel=4", "HS_OPENCL_MATRIX=1", false },
		    { "FAKE_CL=intel=8", "HS_OPENCL_MATRIX=0", false } };
	struct buf text;
	(void)state;
	if (!have_fake)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		apart((const char *const[]){ with_fake, row[i].fault, row[i].off, NULL },
		      multiply_halves, &text);
		expect(&text, right, row[i].fault);
		if (row[i].warns) {
			expect(&text, "opencl:0 (", row[i].fault);
			expect(&text, "its matrix units are not used", row[i].fault);
			expect(&text, "does not compile the kernels", row[i].fault);
		} else {
			assert_null(strstr(text.p, "matrix units"));
		}
		buf_release(&text);
	}
	/* a card whose driver has no such extension says so in a training, once */
	static const char *const cards[] = { "FAKE_CL=gpu", "FAKE_CL=" };
	halves = 260;
	for (size_t i = 0; i < ARRAY_LEN(cards); i++) {
		static const char says[] = "the driver has no extension for matrix units";
		apart((const char *const[]){ with_fake, cards[i], NULL }, multiply_halves, &text);
		const char *at = strstr(text.p, says);
		assert_true(!at == (i == 1));
		assert_true(!at || !strstr(at + 1, says));
		buf_release(&text);
	}
}

/* The message names the device, the compiler's words, and the file with the whole log. */
static void a_kernel_that_does_not_compile_is_explained(void **state)
{
	(void)state;
	struct buf text, log;
	struct err e = { 0 };
	char dir[] = "/tmp/hs-drivers-XXXXXX", cache[64];
	if (!have_fake)
		skip();
	assert_non_null(mkdtemp(dir));
	snprintf(cache, sizeof cache, "XDG_CACHE_HOME=%s", dir);
	/* a word that the compiler does not know */
	apart((const char *const[]){ with_fake, "HS_OPENCL_OPTIONS=-Dfor=nosuchword", cache, NULL },
	      multiply, &text);
	expect(&text, "opencl:0 (", "the compiler's error");
	expect(&text, "does not compile the kernels", "the compiler's error");
	expect(&text, "nosuchword", "the compiler's error");
	static const char before[] = "the whole log is in ";
	char *path = strstr(text.p, before);
	if (!path)
		fail_msg("no file is named in:\n%s", text.p);
	path += sizeof before - 1;
	path[strcspn(path, ")")] = 0;
	buf_init(&log);
	if (buf_read_file(&log, path, 0, &e) < 0)
		fail_msg("%s", e.msg);
	buf_add(&log, "", 0);
	expect(&log, "nosuchword", path);
	buf_release(&text);
	buf_release(&log);
	/* without the option the same device computes */
	apart((const char *const[]){ with_fake, NULL }, multiply, &text);
	expect(&text, "nothing failed", "without the option");
	buf_release(&text);
	assert_int_equal(shell(&text, "rm -r '%s'", dir), 0);
	buf_release(&text);
}

static void check_probe(const json_t *dev, bool others)
{
	static const char *const rates[] = { "copy_bytes_per_second", "upload_bytes_per_second",
					     "download_bytes_per_second" };
	static const char *const types[] = { "float32", "bfloat16", "float16" };
	const json_t *p = json_object_get(dev, "probe");
	assert_non_null(p);
	for (size_t i = 0; i < ARRAY_LEN(rates); i++)
		assert_true(json_number_value(json_object_get(p, rates[i])) > 0);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		const json_t *t = json_object_get(p, types[i]);
		assert_true(i || json_number_value(json_object_get(t, "flops")) > 0);
		/* the probe reports no native dtype that the device does not have */
		assert_true(!json_is_true(json_object_get(t, "native")) ||
			    json_is_true(json_object_get(dev, types[i])));
	}
	assert_int_equal(json_is_integer(json_object_get(p, "memory_others")), others);
}

static void probe_measures_every_device(void **state)
{
	struct buf text;
	struct err e = { 0 };
	json_t *doc;
	(void)state;
	int status = shell(&text, "HS_OPENCL_LIBRARY='%s' \"$HS_BIN\" devices --probe --json",
			   have_fake ? fake : empty);
	assert_int_equal(status, 0);
	/* before or after the list there may be a line about the empty library */
	const char *list = strstr(text.p, "[\n"), *end = strstr(text.p, "\n]");
	if (!list || !end ||
	    json_parse_text(list, (size_t)(end + 2 - list), "devices", &doc, &e) < 0)
		fail_msg("%s in:\n%s", e.msg, text.p);
	for (size_t i = 0; i < json_array_size(doc); i++) {
		const json_t *dev = json_array_get(doc, i);
		const char *name = json_string_value(json_object_get(dev, "backend"));
		check_probe(dev, strcmp(name, "opencl") != 0 || strstr(text.p, "amd"));
	}
	json_decref(doc);
	buf_release(&text);
}

/* Sets `spec` to what 'auto' opens, or with k >= 0 to what process k of several gets. */
static void choice_of(int k, const char *library, const char *faults, char spec[DEV_SPEC])
{
	int fd[2];
	assert_int_equal(pipe(fd), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct dev *d;
		struct err e = { 0 };
		char got[DEV_SPEC] = "";
		setenv("HS_OPENCL_LIBRARY", library, 1);
		setenv("FAKE_CL", faults, 1);
		unsetenv("RUSTICL_ENABLE"); /* one device */
		if (k >= 0)
			dev_successive(k, got);
		else if (dev_open("auto", &d, &e) >= 0)
			dev_spec(d, got);
		_exit(write(fd[1], got, sizeof got) == sizeof got ? 0 : 1);
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], spec, DEV_SPEC), DEV_SPEC);
	close(fd[0]);
	waitpid(pid, NULL, 0);
}

static void choice(const char *library, const char *faults, char spec[DEV_SPEC])
{
	choice_of(-1, library, faults, spec);
}

static void auto_takes_the_best_that_opens(void **state)
{
	char spec[DEV_SPEC];
	struct err e = { 0 };
	(void)state;
	if (backend_find("cuda") || backend_find("hip")) {
		for (int i = 0; i < 2; i++) {
			const struct backend *be = backend_find(i ? "hip" : "cuda");
			if (be && be->count(&e) > 0)
				skip(); /* a card is here: it would be chosen */
		}
	}
	choice(empty, "", spec);
	assert_string_equal(spec, "cpu:0");
	choice_of(2, empty, "", spec);
	assert_string_equal(spec, "cpu:0");
	if (!have_fake)
		skip();
	choice(fake, "gpu", spec);
	assert_string_equal(spec, "opencl:0");
	choice(fake, "gpu closed", spec);
	assert_string_equal(spec, "cpu:0");
	for (int k = 0; k < 3; k++) { /* one card, three processes: they share it in turn */
		choice_of(k, fake, "gpu", spec);
		assert_string_equal(spec, "opencl:0");
		choice_of(k, fake, "gpu closed", spec);
		assert_string_equal(spec, "cpu:0");
	}
}

/* PoCL is a driver for the processor: never chosen over cpu. Another driver here may be that of a
 * card. */
static void auto_never_takes_a_processor_by_opencl(void **state)
{
	char spec[DEV_SPEC];
	struct buf text;
	(void)state;
	if (!have_fake ||
	    shell(&text, "\"$HS_BIN\" devices | grep ^opencl | grep -qv 'pthread\\|llvmpipe'") == 0)
		skip();
	buf_release(&text);
	choice(fake, "", spec);
	assert_string_not_equal(spec, "opencl:0");
}

static int find_drivers(void **state)
{
	struct buf text;
	const char *bin = getenv("HS_BIN");
	char here[3000];
	(void)state;
	if (!bin || !mkdtemp(cache))
		return -1;
	snprintf(own, sizeof own, "XDG_CACHE_HOME=%s", cache);
	snprintf(here, sizeof here, "%s", bin);
	*strrchr(here, '/') = 0;
	snprintf(fake, sizeof fake, "%s/tests/drivers/fake_opencl.so", here);
	snprintf(with_fake, sizeof with_fake, "HS_OPENCL_LIBRARY=%s", fake);
	snprintf(empty, sizeof empty, "%s/tests/drivers/empty_opencl.so", here);
	have_fake = access(fake, R_OK) == 0 &&
		    shell(&text, "HS_OPENCL_LIBRARY='%s' \"$HS_BIN\" devices | grep ^opencl:0",
			  fake) == 0;
	if (access(fake, R_OK) == 0)
		buf_release(&text);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_drivers_hide_nobody),
		cmocka_unit_test(one_broken_platform_hides_no_other),
		cmocka_unit_test(a_lost_device_is_named),
		cmocka_unit_test(a_driver_that_computes_wrong_is_refused),
		cmocka_unit_test(queues_that_do_not_wait_are_not_used),
		cmocka_unit_test(a_hanging_device_ends_the_process),
		cmocka_unit_test(memory_that_is_short_is_counted),
		cmocka_unit_test(training_without_memory_says_what_to_lower),
		cmocka_unit_test(matrix_units_that_do_not_work),
		cmocka_unit_test(a_kernel_that_does_not_compile_is_explained),
		cmocka_unit_test(probe_measures_every_device),
		cmocka_unit_test(auto_takes_the_best_that_opens),
		cmocka_unit_test(auto_never_takes_a_processor_by_opencl),
	};
	return cmocka_run_group_tests(tests, find_drivers, remove_cache);
}
