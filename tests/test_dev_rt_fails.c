/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_rt_fails.c - what the host does where a CUDA or HIP card, its driver or its product
 * library is not as it should be, with a stand-in (support/fake_rt.h): products without a library,
 * cards that hang or are lost, cards that may not be opened. It says nothing about real cards. */
#include "support/fake_rt.h"

#include "base/log.h"
#include "dev/dev_watch.h"
#include "dev/rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void products_without_the_library(void **state)
{
	static const char *const words[] = { "noalgo", "noblas" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		struct err e = { 0 };
		struct dev_caps caps;
		float in[6] = { 1, 2, 3, 4, 5, 6 }, out[4];
		faults(words[i]);
		struct dev *d = open_card("cuda:0");
		struct dev_buf *a = take(d, sizeof in), *c = take(d, sizeof out);
		assert_int_equal(dev_upload(DEV_REF(a, 0), in, sizeof in, &e), 0);
		const struct dev_gemm g = { .m = 2,
					    .n = 2,
					    .k = 3,
					    .tb = true,
					    .a = { a, 0 },
					    .b = { a, 0 },
					    .c = { c, 0 },
					    .lda = 3,
					    .ldb = 3,
					    .ldc = 2,
					    .alpha = 1 };
		assert_int_equal(dev_gemm(d, &g, &e), 0);
		assert_int_equal(dev_download(out, DEV_REF(c, 0), sizeof out, &e), 0);
		assert_true(out[0] == 14 && out[1] == 32 && out[2] == 32 && out[3] == 77);
		/* a format that only the portable kernel multiplies is not native */
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		assert_false(caps.bf16);
		assert_false(caps.f16);
		dev_free(a);
		dev_free(c);
		dev_close(d);
	}
	struct err e = { 0 };
	struct dev_caps caps;
	faults("arch=75");
	struct dev *d = open_card("cuda:0");
	assert_int_equal(dev_caps(d, &caps, &e), 0);
	assert_true(caps.f16 && !caps.bf16);
	dev_close(d);
	faults("");
}

static void a_card_that_hangs_or_is_lost(void **state)
{
	static const struct {
		const char *words, *says;
	} row[] = { { "hang=1", "does not answer" }, { "lost=1", "ILLEGAL_ADDRESS" } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t k = 0; k < ARRAY_LEN(row) - i;
		     k++) { /* HIP tells of none that is lost */
			/* fractions of a second count: rounded to 0 the limit would be for ever */
			setenv("HS_DEVICE_TIMEOUT", i ? "0.5" : "1", 1);
			struct err e = { 0 };
			float got;
			struct dev *d = open_card(specs[i]);
			struct dev_buf *x = take(d, 64), *more;
			faults(row[k].words);
			assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
			assert_int_equal(dev_download(&got, DEV_REF(x, 0), 4, &e), ERR_DEVICE);
			has(e.msg, specs[i]);
			has(e.msg, "Fake card 0");
			has(e.msg, row[k].says);
			has(e.msg, "axpby");
			/* no more calls go to the card, not even when the device is closed */
			assert_int_equal(dev_alloc(d, 64, &more, &e), ERR_DEVICE);
			has(e.msg, "failed before");
			dev_free(x);
			dev_close(d);
			faults("");
		}
	unsetenv("HS_DEVICE_TIMEOUT");
}

static void last_words(int sig)
{
	(void)sig;
	dev_work_say(2);
}

/* HIP's runtime ends the process when a kernel fails: the error is printed before that. */
static void an_abort_names_the_card(void **state)
{
	int fd[2], status;
	char text[4096];
	(void)state;
	assert_int_equal(pipe(fd), 0);
	fflush(NULL);
	const pid_t pid = fork();
	if (pid == 0) {
		struct err e = { 0 };
		dup2(fd[1], 2);
		signal(SIGABRT, last_words);
		struct dev *gone = open_card("cuda:0"), *d = open_card("hip:0");
		dev_close(gone);
		struct dev_buf *x = take(d, 64);
		faults("lost=1");
		if (scale(d, x, x, 4, 1, &e) == 0)
			dev_sync(d, &e);
		_exit(0);
	}
	close(fd[1]);
	size_t n = 0;
	for (ssize_t got; (got = read(fd[0], text + n, sizeof text - 1 - n)) > 0;)
		n += (size_t)got;
	text[n] = 0;
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	has(text, "hip:0 (Fake card 0): the process is aborted; last work given to it: axpby");
	assert_null(strstr(text, "cuda:0"));
}

/* A card with much to do does not count as hanging: the limit counts from the last progress. */
static void a_slow_card_does_not_hang(void **state)
{
	(void)state;
	setenv("HS_DEVICE_TIMEOUT", "0.5", 1);
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		struct dev *d = open_card(specs[i]);
		struct dev_buf *x = take(d, 64);
		float got;
		assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
		assert_int_equal(dev_sync(d, &e), 0);
		faults("slow=12");
		for (int k = 0; k < 80; k++) /* a second's work */
			assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
		assert_int_equal(dev_download(&got, DEV_REF(x, 0), 4, &e), 0);
		for (int k = 0; k < 80; k++)
			assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
		int busy;
		while ((busy = dev_busy(d, &e)) == 1)
			usleep(1000);
		if (busy < 0)
			fail_msg("%s", e.msg);
		/* one launch that takes longer than the limit does */
		faults("slow=1500");
		assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
		assert_int_equal(dev_sync(d, &e), ERR_DEVICE);
		has(e.msg, "does not answer");
		faults("");
		dev_free(x);
		dev_close(d);
	}
	unsetenv("HS_DEVICE_TIMEOUT");
}

struct end {
	struct dev *d;
	int rc;
	struct err e;
};

static void *end_download(void *ctx)
{
	struct end *x = ctx;
	x->rc = dev_download_end(x->d, &x->e);
	return NULL;
}

static void downloads_end_wherever_they_are_asked_to(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		const float in = 7;
		float out = 0, two = 0;
		char other[16];
		faults("devices=2");
		struct dev *d = open_card(specs[i]);
		struct dev_buf *x = take(d, 64);
		assert_int_equal(dev_upload(DEV_REF(x, 0), &in, 4, &e), 0);
		/* in another thread */
		assert_int_equal(dev_download_begin(&out, DEV_REF(x, 0), 4, &e), 0);
		struct end end = { .d = d };
		pthread_t t;
		pthread_create(&t, NULL, end_download, &end);
		pthread_join(t, NULL);
		if (end.rc < 0)
			fail_msg("%s", end.e.msg);
		assert_true(out == 7);
		/* after this thread has turned to another card */
		snprintf(other, sizeof other, "%s:1", i ? "hip" : "cuda");
		struct dev *d2 = open_card(other);
		struct dev_buf *y = take(d2, 64);
		out = 0;
		assert_int_equal(dev_download_begin(&out, DEV_REF(x, 0), 4, &e), 0);
		assert_int_equal(dev_upload(DEV_REF(y, 0), &in, 4, &e), 0);
		assert_int_equal(dev_download_end(d, &e), 0);
		assert_int_equal(dev_download(&two, DEV_REF(y, 0), 4, &e), 0);
		assert_true(out == 7 && two == 7);
		dev_free(y);
		dev_close(d2);
		dev_free(x);
		dev_close(d);
		/* after a hang nobody waits for it again, and it writes nothing any more */
		setenv("HS_DEVICE_TIMEOUT", "0.3", 1);
		faults("");
		d = open_card(specs[i]);
		x = take(d, 64);
		faults("hang=1");
		out = 0;
		assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
		assert_int_equal(dev_download_begin(&out, DEV_REF(x, 0), 4, &e), 0);
		assert_int_equal(dev_sync(d, &e), ERR_DEVICE);
		has(e.msg, "does not answer");
		/* no download is under way any more */
		assert_int_equal(dev_download_end(d, &e), 0);
		assert_int_equal(dev_download_begin(&out, DEV_REF(x, 0), 4, &e), ERR_DEVICE);
		has(e.msg, "failed before");
		assert_int_equal(((struct rt *)d->priv)->down.n, 0);
		faults("");
		assert_true(out == 0);
		dev_free(x);
		dev_close(d);
		unsetenv("HS_DEVICE_TIMEOUT");
	}
}

/* C (2,2) = A A^T with A (2,k) of ones and twos; k even. */
static void multiply(struct dev *d, int64_t k, enum dtype t)
{
	struct err e = { 0 };
	float in[256], out[4];
	uint16_t half[256];
	for (int64_t i = 0; i < 2 * k; i++)
		in[i] = i < k ? 1 : 2;
	dtype_from_f32(t, in, half, (uint64_t)(2 * k));
	struct dev_buf *a = take(d, sizeof in), *c = take(d, sizeof out);
	const size_t z = dtype_size(t);
	assert_int_equal(dev_upload(DEV_REF(a, 0), t == DT_F32 ? (void *)in : (void *)half,
				    (size_t)(2 * k) * z, &e),
			 0);
	const struct dev_gemm g = { .m = 2,
				    .n = 2,
				    .k = k,
				    .tb = true,
				    .a = { a, 0 },
				    .b = { a, 0 },
				    .c = { c, 0 },
				    .lda = k,
				    .ldb = k,
				    .ldc = 2,
				    .ab_dtype = t,
				    .alpha = 1 };
	if (dev_gemm(d, &g, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(dev_download(out, DEV_REF(c, 0), sizeof out, &e), 0);
	if (!(out[0] == (float)k && out[1] == 2 * (float)k && out[3] == 4 * (float)k))
		fail_msg("a product over %lld: %g %g %g", (long long)k, (double)out[0],
			 (double)out[1], (double)out[3]);
	dev_free(a);
	dev_free(c);
}

static long counter(const char *name)
{
	void *h = dlopen(getenv("HS_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
	const long *n = h ? dlsym(h, name) : NULL;
	assert_non_null(n);
	return *n;
}

static long asked(void) { return counter("fake_products"); }

/* Libraries keep things in the card's context, which outlives a device that is closed. */
static void open_close_open(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (int k = 0; k < 2; k++) {
			struct dev *d = open_card(specs[i]);
			const long before = asked();
			multiply(d, 10, DT_F32);
			assert_int_equal(asked() - before, 1);
			dev_close(d);
		}
}

/* A product that the library lacks goes to the portable kernel; the library is asked once. */
static void products_that_a_library_lacks(void **state)
{
	static const char *const words[][2] = { { "status=7", "status=15" },
						{ "status=2", "status=2" } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (int k = 0; k < 2; k++) {
			struct dev *d = open_card(specs[i]);
			faults(words[i][k]);
			const long before = asked();
			multiply(d, 10, DT_F32);
			multiply(d, 10, DT_F32);
			assert_int_equal(asked() - before, 1);
			dev_close(d);
			faults("");
		}
}

/* C (m,n) of ones: A B with A (m,k), or with `grad` A^T B with A (k,m); every number of C is k. */
static void multiply_tokens(struct dev *d, int64_t m, int64_t n, int64_t k, bool grad)
{
	struct err e = { 0 };
	enum { MOST = 256 * 16 };
	static float x[MOST];
	for (int i = 0; i < MOST; i++)
		x[i] = 1;
	struct dev_buf *a = take(d, sizeof x), *b = take(d, sizeof x), *c = take(d, sizeof x);
	assert_true(m * k <= MOST && n * k <= MOST && m * n <= MOST);
	assert_int_equal(dev_upload(DEV_REF(a, 0), x, sizeof x, &e), 0);
	assert_int_equal(dev_upload(DEV_REF(b, 0), x, sizeof x, &e), 0);
	assert_int_equal(dev_upload(DEV_REF(c, 0), x, sizeof x, &e), 0);
	const struct dev_gemm g = { .m = m,
				    .n = n,
				    .k = k,
				    .ta = grad,
				    .tb = !grad,
				    .a = { a, 0 },
				    .b = { b, 0 },
				    .c = { c, 0 },
				    .lda = grad ? m : k,
				    .ldb = grad ? n : k,
				    .ldc = n,
				    .alpha = 1 };
	if (dev_gemm(d, &g, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(dev_download(x, DEV_REF(c, 0), sizeof x, &e), 0);
	for (int64_t i = 0; i < MOST; i++)
		if (!(x[i] == (i < m * n ? (float)k : 1)))
			fail_msg("%lldx%lldx%lld: number %lld is %g", (long long)m, (long long)n,
				 (long long)k, (long long)i, (double)x[i]);
	dev_free(a);
	dev_free(b);
	dev_free(c);
}

/* Microbatches without padding differ in their numbers of tokens: one choice of a kernel serves
 * those up to the next multiple of 64. Where it does not serve one, that one gets its own. */
static void a_choice_serves_like_numbers_of_tokens(void **state)
{
	static const int64_t tokens[] = { 100, 65, 128, 101, 100, 127 };
	(void)state;
	for (int own = 0; own < 2; own++)
		for (int grad = 0; grad < 2; grad++) {
			struct dev *d = open_card("cuda:0");
			faults(own ? "sizes" : "");
			multiply(d, 10, DT_F32); /* the library is opened and tried */
			const long before = counter("fake_choices"), products = asked();
			for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
				multiply_tokens(d, grad ? 7 : tokens[i], 5, grad ? tokens[i] : 11,
						grad);
			const long choices = counter("fake_choices") - before;
			/* with `sizes`: that for 128, and one for each number below it */
			assert_int_equal(choices, own ? 5 : 1);
			assert_int_equal(asked() - products, ARRAY_LEN(tokens));
			multiply_tokens(d, grad ? 7 : 129, 5, grad ? 129 : 11, grad);
			assert_true(counter("fake_choices") - before > choices);
			dev_close(d);
			faults("");
		}
}

/* Two processes on a card that admits one, or has memory for one. */
static void a_card_of_another_process(void **state)
{
	struct err e = { 0 };
	struct dev *d;
	(void)state;
	faults("exclusive");
	assert_int_equal(dev_open("cuda:0", &d, &e), ERR_DEVICE);
	has(e.msg, "another process uses it, and it admits one at a time");
	has(e.msg, "nvidia-smi -i 0 -c DEFAULT");
	assert_null(strchr(e.msg, '\n'));
	faults("crowded");
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		assert_int_equal(dev_open(specs[i], &d, &e), ERR_NOMEM);
		has(e.msg, "others have taken so much of its memory");
		has(e.msg, i ? "amd-smi process shows which" : "nvidia-smi shows");
	}
	faults("");
}

static char warned[1000];
static void keep_line(void *ctx, enum log_level level, const char *line)
{
	const size_t n = strlen(warned);
	(void)ctx, (void)level;
	snprintf(warned + n, sizeof warned - n, "%s\n", line);
}

/* A card that is too old for the dtype asked for computes in it all the same; a line says so. */
static void a_card_too_old_for_the_dtype(void **state)
{
	static const struct {
		const char *card, *says;
		enum dtype t;
	} row[] = { { "arch=75",
		      "sm_75 has no units for bfloat16, so it computes slowly; with "
		      "compute_dtype: float16",
		      DT_BF16 },
		    { "arch=86", NULL, DT_BF16 } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		faults(row[i].card);
		struct dev *d = open_card("cuda:0");
		warned[0] = 0;
		log_set_sink(keep_line, NULL, LOG_WARN);
		for (int k = 0; k < 260; k++)
			multiply(d, 10, row[i].t);
		log_set_sink(NULL, NULL, LOG_WARN);
		const char *said_so = strstr(warned, "has no units");
		assert_true(!said_so == !row[i].says);
		if (row[i].says) {
			has(warned, row[i].says);
			assert_null(strstr(said_so + 1, "has no units"));
		}
		dev_close(d);
	}
	faults("");
}

static int halve(struct dev *d, struct dev_buf *x, struct err *e)
{
	const union dev_arg a[] = { { .b = DEV_REF(x, 0) },
				    { .b = DEV_REF(x, 0) },
				    { .i = 4 },
				    { .f = 0.5f },
				    { .f = 0 } };
	return dev_launch(d, K_axpby, DT_BF16, a, e);
}

/* Free blocks go back to the driver when a library or a launch finds no memory, and when kernels
 * are loaded in the middle of a job, as those of the optimizer are. */
static void no_memory_inside_the_driver(void **state)
{
	static const char *const words[] = { "blasfull", "blaslate", "full", "loadfull",
					     "findfull" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t k = 0; k < ARRAY_LEN(words); k++) {
			struct err e = { 0 };
			struct dev *d = open_card(specs[i]);
			struct rt *c = d->priv;
			struct dev_buf *x = take(d, 64);
			multiply(d, 10, DT_F32);
			assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
			dev_free(take(d, 4 * MIB));
			const uint64_t before = c->held;
			faults(words[k]);
			if (k < 2)
				multiply(d, 10, DT_F32);
			else if ((k > 2 ? halve(d, x, &e) : scale(d, x, x, 4, 1, &e)) < 0)
				fail_msg("%s: %s", words[k], e.msg);
			assert_true(c->held < before);
			/* without free blocks it is an error */
			faults("");
			assert_int_equal(dev_sync(d, &e), 0);
			dev_free(x);
			dev_close(d);
		}
}

/* Sums of 16-bit products stay float32, also where a library may add parts in C's dtype. */
static void sums_stay_float32(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct dev *d = open_card("cuda:0");
	/* 256 ones and 1 + 1/128: half of the sum needs more digits than bfloat16 has */
	enum { K = 1030 };
	float in[K], got;
	uint16_t half[K], out;
	for (int i = 0; i < K; i++)
		in[i] = i < K / 2 ? 1.0078125f : -1;
	dtype_from_f32(DT_BF16, in, half, K);
	float one[K];
	uint16_t ones[K];
	for (int i = 0; i < K; i++)
		one[i] = 1;
	dtype_from_f32(DT_BF16, one, ones, K);
	struct dev_buf *a = take(d, sizeof half), *b = take(d, sizeof ones), *c = take(d, 2);
	assert_int_equal(dev_upload(DEV_REF(a, 0), half, sizeof half, &e), 0);
	assert_int_equal(dev_upload(DEV_REF(b, 0), ones, sizeof ones, &e), 0);
	const struct dev_gemm g = { .m = 1,
				    .n = 1,
				    .k = K,
				    .tb = true,
				    .a = { a, 0 },
				    .b = { b, 0 },
				    .c = { c, 0 },
				    .lda = K,
				    .ldb = K,
				    .ldc = 1,
				    .ab_dtype = DT_BF16,
				    .c_dtype = DT_BF16,
				    .alpha = 1 };
	const long before = asked();
	assert_int_equal(dev_gemm(d, &g, &e), 0);
	assert_int_equal(asked() - before, 1);
	assert_int_equal(dev_download(&out, DEV_REF(c, 0), 2, &e), 0);
	dtype_to_f32(DT_BF16, &out, &got, 1);
	assert_true(got == 4.03125f); /* 515/128 = 4.0234, to 8 digits */
	dev_free(a);
	dev_free(b);
	dev_free(c);
	dev_close(d);
}

/* A library without code for the card is skipped and the next one is tried. */
static void the_library_that_has_the_card(void **state)
{
	(void)state;
	char copy[300], command[5000], both[5000];
	char *library = strdup(getenv("HS_CUBLASLT_LIBRARY"));
	struct err e = { 0 };
	struct dev_caps caps;
	snprintf(copy, sizeof copy, "%s/libnew.so.13", cache);
	snprintf(command, sizeof command, "cp '%s' '%s'", library, copy);
	assert_int_equal(system(command), 0);
	snprintf(both, sizeof both, "%s:%s", copy, library);
	faults("nokernels=libnew.so.13");
	setenv("HS_CUBLASLT_LIBRARY", both, 1);
	struct dev *d = open_card("cuda:0");
	const long before = asked();
	multiply(d, 10, DT_F32);
	assert_int_equal(asked() - before, 1);
	assert_int_equal(dev_caps(d, &caps, &e), 0);
	assert_true(caps.f16 && caps.bf16);
	dev_close(d);
	setenv("HS_CUBLASLT_LIBRARY", copy, 1);
	d = open_card("cuda:0"); /* none has it: the portable kernel */
	multiply(d, 10, DT_F32);
	dev_close(d);
	setenv("HS_CUBLASLT_LIBRARY", library, 1);
	free(library);
	faults("");
}

/* Runs the program with these settings, which a process reads once, and checks what it prints. */
static void says(const char *settings, const char *word, const char *absent)
{
	char text[16384];
	assert_int_equal(said(text, sizeof text, settings), 0);
	if (word)
		has(text, word);
	if (absent && strstr(text, absent))
		fail_msg("'%s' is in: %s", absent, text);
}

/* rocBLAS ends the process when its folder lacks the files of a card. It must also use the same HIP
 * runtime as this program. */
static void rocblas_that_would_not_do(void **state)
{
	static const struct {
		const char *files;
		bool does;
	} row[] = {
		{ "TensileLibrary_lazy_gfx1030.dat TensileLibrary_lazy_gfx90a.co", false },
		{ "Kernels.so-000-gfx90a.hsaco", false },
		{ "TensileLibrary_lazy_gfx90a.dat", true },
		{ "TensileLibrary_gfx90a.dat", true },
		{ "TensileLibrary.dat", true },
		{ "gfx90a/TensileLibrary_lazy_gfx90a.dat", true },
	};
	char settings[1200];
	static const char lacks[] = "rocBLAS is installed without kernels for gfx90a";
	(void)state;
	if (!getenv("HS_BIN"))
		skip();
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		snprintf(settings, sizeof settings,
			 "d='%s/tensile'; rm -rf $d; mkdir -p $d/gfx90a; (cd $d; touch %s); "
			 "ROCBLAS_TENSILE_LIBPATH=$d",
			 cache, row[i].files);
		says(settings, row[i].does ? NULL : lacks, row[i].does ? lacks : NULL);
	}
	snprintf(settings, sizeof settings,
		 "cp \"$HS_ROCBLAS_LIBRARY\" '%s/librocblas.so.5'; "
		 "HS_ROCBLAS_LIBRARY='%s/librocblas.so.5'",
		 cache, cache);
	says(settings, "uses the HIP runtime", NULL);
	/* rocBLAS is tried in another process first; a trial that went well is not repeated */
	snprintf(settings, sizeof settings,
		 "rm -rf '%s/trial'; XDG_CACHE_HOME='%s/trial' FAKE_RT=rocabort", cache, cache);
	says(settings, "hip: rocBLAS ended a trial process (signal 6)", NULL);
	says(settings, "hip:0", NULL);
	snprintf(settings, sizeof settings, "XDG_CACHE_HOME='%s/trial' FAKE_RT=''", cache);
	says(settings, "hip:0", "trial");
	says(settings, "hip:0", NULL);
}

/* The most common first problem with an AMD card: the user is in none of its groups. */
static void a_card_that_the_user_may_not_open(void **state)
{
	char node[300], text[600] = "";
	int fd[2], status;
	(void)state;
	struct dev *d = open_card("hip:0");
	const struct rt_vendor *v = ((struct rt *)d->priv)->v;
	dev_close(d);
	snprintf(node, sizeof node, "/tmp/hs-kfd-%ld", (long)getpid());
	FILE *f = fopen(node, "we");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(chmod(node, geteuid() ? 0 : 0600), 0);
	assert_int_equal(pipe(fd), 0);
	fflush(NULL);
	const pid_t pid = fork();
	if (pid == 0) {
		struct err e = { 0 };
		unsetenv("HS_HIP_LIBRARY");
		setenv("HS_DEVICE_NODES", node, 1);
		v->lib->opened = false; /* as in a new process */
		if (geteuid() == 0 && setuid(65534) < 0)
			_exit(1);
		const int n = backend_find("hip")->count(&e);
		_exit(write(fd[1], e.msg, strlen(e.msg)) > 0 && n == ERR_DEVICE ? 0 : 1);
	}
	close(fd[1]);
	const ssize_t n = read(fd[0], text, sizeof text - 1);
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(node);
	assert_true(n > 0 && status == 0);
	has(text, "this user may not open /tmp/hs-kfd-");
	has(text, "usermod -aG render,video $USER");
}

/* MI200 takes the smallest float16 numbers for 0, unless a product sets a flag. Products of the
 * backward pass set it. The stand-in is that card, and refuses any other flags. */
static void float16_backward_on_mi200(void **state)
{
	struct err e = { 0 };
	const uint16_t one[16] = { 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00,
				   0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00 };
	(void)state;
	struct dev *d = open_card("hip:0");
	struct dev_buf *a = take(d, sizeof one), *c = take(d, 64);
	assert_int_equal(dev_upload(DEV_REF(a, 0), one, sizeof one, &e), 0);
	for (int how = 0; how < 4; how++) {
		float out[16];
		const struct dev_gemm g = { .m = 4,
					    .n = 4,
					    .k = 4,
					    .ta = how & 1,
					    .tb = how & 2,
					    .a = { a, 0 },
					    .b = { a, 0 },
					    .c = { c, 0 },
					    .lda = 4,
					    .ldb = 4,
					    .ldc = 4,
					    .ab_dtype = DT_F16,
					    .c_dtype = DT_F32,
					    .alpha = 1 };
		const long before = asked();
		if (dev_gemm(d, &g, &e) < 0)
			fail_msg("%s", e.msg);
		assert_int_equal(asked() - before, 1);
		assert_int_equal(dev_download(out, DEV_REF(c, 0), sizeof out, &e), 0);
		assert_true(out[0] == 4 && out[15] == 4);
	}
	dev_free(a);
	dev_free(c);
	dev_close(d);
}

static void memory_of_cards_that_share_it(void **state)
{
	static const struct {
		const char *spec, *words;
		int64_t host, left, total, free; /* MiB; host 0: it is not asked */
	} row[] = {
		/* more free than there is: what counts is the host's */
		{ "hip:0", "integrated=-1 memory=6000 free=12000", 16000, 9000, 12000, 9000 },
		{ "hip:0", "integrated=-1 memory=6000 free=20000", 16000, 15000, 16000, 15000 },
		/* a part of the host's memory only */
		{ "hip:0", "integrated=-1 memory=1550 free=1500", 9600, 9000, 1550, 1500 },
		/* page cache does not count as free, and can be had */
		{ "cuda:0", "integrated=-1 memory=12000 free=2000", 12000, 9000, 12000, 9000 },
		{ "cuda:0", "integrated=-1 memory=12000 free=10000", 12000, 9000, 12000, 10000 },
		/* a card with its own memory never has more free than it has in all */
		{ "hip:0", "memory=6000 free=12000", 16000, 9000, 6000, 6000 },
		{ "cuda:0", "memory=6000 free=3000", 16000, 9000, 6000, 3000 },
	};
	char root[64] = "/tmp/hs-host-XXXXXX", command[400];
	(void)state;
	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct err e = { 0 };
		struct dev_caps caps;
		snprintf(command, sizeof command,
			 "mkdir -p %s/proc; printf 'MemTotal: %lld kB\nMemAvailable: %lld kB\n' "
			 ">%s/proc/meminfo",
			 root, (long long)row[i].host << 10, (long long)row[i].left << 10, root);
		assert_int_equal(system(command), 0);
		rt_host_root = root;
		faults(row[i].words);
		struct dev *d = open_card(row[i].spec);
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		assert_int_equal(caps.mem_total / MIB, row[i].total);
		assert_int_equal(caps.mem_free / MIB, row[i].free);
		dev_close(d);
		faults("");
	}
	rt_host_root = "";
	snprintf(command, sizeof command, "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

/* The processor's own graphics come first or last in the driver's list; a card is taken instead. */
static void a_card_before_the_processors_graphics(void **state)
{
	static const struct {
		const char *words, *none;
		int k;
	} row[] = { { "devices=2 integrated=0", "0", 1 },
		    { "devices=2 integrated=1", "1", 0 },
		    { "devices=1 integrated=-1", NULL, 0 } };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t k = 0; k < ARRAY_LEN(row); k++) {
			const struct rt_vendor *v;
			struct dev *d = open_card(specs[i]);
			v = ((struct rt *)d->priv)->v;
			dev_close(d);
			const int count = v->lib->count;
			faults(row[k].words);
			v->lib->count = row[k].words[8] - '0';
			assert_int_equal(rt_rank(v, row[k].k, 30), 30);
			if (row[k].none)
				assert_int_equal(rt_rank(v, row[k].none[0] - '0', 30), 0);
			v->lib->count = count;
			faults("");
		}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(products_without_the_library),
	cmocka_unit_test(a_card_that_hangs_or_is_lost),
	cmocka_unit_test(an_abort_names_the_card),
	cmocka_unit_test(a_slow_card_does_not_hang),
	cmocka_unit_test(downloads_end_wherever_they_are_asked_to),
	cmocka_unit_test(open_close_open),
	cmocka_unit_test(products_that_a_library_lacks),
	cmocka_unit_test(a_choice_serves_like_numbers_of_tokens),
	cmocka_unit_test(a_card_of_another_process),
	cmocka_unit_test(a_card_too_old_for_the_dtype),
	cmocka_unit_test(no_memory_inside_the_driver),
	cmocka_unit_test(sums_stay_float32),
	cmocka_unit_test(the_library_that_has_the_card),
	cmocka_unit_test(rocblas_that_would_not_do),
	cmocka_unit_test(a_card_that_the_user_may_not_open),
	cmocka_unit_test(float16_backward_on_mi200),
	cmocka_unit_test(memory_of_cards_that_share_it),
	cmocka_unit_test(a_card_before_the_processors_graphics),
};

FAKE_RT_MAIN(tests)
