/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_rt.c - what the host does for CUDA and HIP cards, with a stand-in for driver, compiler
 * and product library (tests/drivers/fake_rt.c): memory, transfers and their order beside kernels,
 * arguments of launches, the cache of compiled kernels, and all that can go wrong. It says nothing
 * about real cards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "dev/dev_watch.h"
#include "dev/rt.h"
#include "drivers/entry_sig.h"
#include "support/cards.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char cache[] = "/tmp/hs-rt-XXXXXX";

static void faults(const char *words) { setenv("FAKE_RT", words, 1); }

static struct dev *open_card(const char *spec)
{
	struct dev *d;
	struct err e = { 0 };
	if (dev_open(spec, &d, &e) < 0)
		fail_msg("%s", e.msg);
	return d;
}

static struct dev_buf *take(struct dev *d, size_t n)
{
	struct dev_buf *b;
	struct err e = { 0 };
	if (dev_alloc(d, n, &b, &e) < 0)
		fail_msg("%s", e.msg);
	return b;
}

static void has(const char *text, const char *word)
{
	if (!strstr(text, word))
		fail_msg("'%s' is not in: %s", word, text);
}

/* y = alpha x */
static int scale(struct dev *d, struct dev_buf *y, struct dev_buf *x, int64_t n, float alpha,
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

static int said(char *text, size_t most, const char *env)
{
	char command[5000];
	snprintf(command, sizeof command, "%s \"$HS_BIN\" devices 2>&1", env);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	const size_t n = fread(text, 1, most - 1, f);
	text[n] = 0;
	return pclose(f);
}

static void devices_are_listed(void **state)
{
	static const struct {
		const char *env, *says, *absent;
	} row[] = {
		{ "FAKE_RT=devices=2", "hip:1", NULL },
		{ "FAKE_RT=devices=2", "cuda:1", NULL },
		{ "FAKE_RT=devices=0", "cpu:0", "cuda" },
		{ "FAKE_RT=init=999", "cuda: the CUDA driver answers UNKNOWN", "cuda:0" },
		{ "FAKE_RT=init=999", "cpu:0", NULL },
		{ "HS_CUDA_LIBRARY=/nonexistent.so", "/nonexistent.so is not installed", "cuda:0" },
		{ "HS_CUDA_LIBRARY=/nonexistent.so", "hip:0", NULL },
		{ "HS_NVRTC_LIBRARY=/nonexistent.so",
		  "cuda:0 (Fake card 0): /nonexistent.so is not installed", NULL },
		{ "HS_NVRTC_LIBRARY=/nonexistent.so", "hip:0", NULL },
		{ "HS_CUDA_LIBRARY=${HS_CUDA_LIBRARY%fake_rt.so}lacking_rt.so",
		  "lacking_rt.so has no function cuLaunchKernel", NULL },
		{ "HS_HIP_LIBRARY=${HS_HIP_LIBRARY%fake_rt.so}lacking_rt.so",
		  "lacking_rt.so has no function hipModuleLaunchKernel", NULL },
		{ "HS_HIP_LIBRARY=${HS_HIP_LIBRARY%fake_rt.so}lacking_rt.so", "cuda:0", NULL },
	};
	char text[16384];
	(void)state;
	if (!getenv("HS_BIN")) {
		printf("skipped: HS_BIN does not name the program\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		assert_int_equal(said(text, sizeof text, row[i].env), 0);
		has(text, row[i].says);
		if (row[i].absent && strstr(text, row[i].absent))
			fail_msg("%s: '%s' is in: %s", row[i].env, row[i].absent, text);
	}
}

static void blocks_are_used_again(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		faults("memory=64 noblas"); /* the library takes memory too */
		struct dev *d = open_card(specs[i]);
		struct rt *c = d->priv;
		struct dev_caps caps;
		struct err e = { 0 };
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		const uint64_t before = c->held;
		struct dev_buf *a = take(d, 6 * MIB);
		const uint64_t at = rt_block_of(a)->at;
		dev_free(a);
		a = take(d, 6 * MIB - 1000); /* nearly the same */
		assert_int_equal(rt_block_of(a)->at, at);
		struct dev_buf *b = take(d, 6 * MIB); /* taken */
		assert_true(rt_block_of(b)->at != at);
		assert_int_equal(c->held, before + 12 * MIB);
		dev_free(a);
		dev_free(b);
		a = take(d, 2 * MIB); /* too little for either */
		assert_int_equal(c->held, before + 14 * MIB);
		dev_free(a);
		/* what is spare counts as free, and goes back when there is no room */
		assert_int_equal(dev_caps(d, &caps, &e), 0);
		assert_int_equal(caps.mem_free, 64 * MIB - before);
		a = take(d, 64 * MIB - before - 4 * MIB);
		assert_int_equal(c->held, 60 * MIB);
		assert_int_equal(c->held_peak, 60 * MIB);
		assert_int_equal(d->mem_peak, a->size);
		dev_free(a);
		dev_close(d);
	}
	faults("");
}

static void too_much_memory_is_explained(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		struct dev_buf *a, *b = NULL;
		faults("memory=64 others=16 noblas");
		struct dev *d = open_card(specs[i]);
		a = take(d, 32 * MIB);
		assert_int_equal(dev_alloc(d, 40 * MIB, &b, &e), ERR_NOMEM);
		has(e.msg, specs[i]);
		has(e.msg, "a buffer of 40 MiB does not fit: of 64 MiB 16 are free, this "
			   "program's buffers hold 32, other programs and the driver 16;");
		has(e.msg, "24 MiB must be saved");
		assert_null(b);
		dev_free(a);
		dev_close(d);
	}
	faults("");
}

static uint32_t *numbers(size_t n, uint32_t salt)
{
	uint32_t *v = mem_array(n, sizeof *v);
	assert_non_null(v);
	for (size_t i = 0; i < n; i++)
		v[i] = (uint32_t)i * 2654435761u ^ salt;
	return v;
}

static void transfers_in_pieces(void **state)
{
	static const size_t sizes[] = { 1,
					RT_PIECE - 4,
					RT_PIECE,
					RT_PIECE + 4,
					RT_SLOTS * RT_PIECE,
					(RT_SLOTS + 2) * RT_PIECE + 12 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct dev *d = open_card(specs[i]);
		struct err e = { 0 };
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			const size_t n = sizes[k];
			uint32_t *in = numbers(n / 4 + 1, (uint32_t)k),
				 *out = numbers(n / 4 + 1, 7);
			struct dev_buf *b = take(d, n + 8);
			assert_int_equal(dev_upload(DEV_REF(b, 4), in, n, &e), 0);
			assert_int_equal(dev_download(out, DEV_REF(b, 4), n, &e), 0);
			assert_memory_equal(in, out, n);
			dev_free(b);
			mem_free(in);
			mem_free(out);
		}
		dev_close(d);
	}
}

/* The stand-in runs nothing before it is asked to, so each of these fails when one stream does not
 * wait for the other. */
static void order_of_the_calls(void **state)
{
	enum { N = 3000 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct dev *d = open_card(specs[i]);
		struct err e = { 0 };
		struct dev_buf *x = take(d, 4 * N), *y = take(d, 4 * N), *z = take(d, 4 * N);
		float *one = mem_array(N, 4), *two = mem_array(N, 4), *got = mem_array(N, 4);
		for (int k = 0; k < N; k++) {
			one[k] = (float)k;
			two[k] = (float)-k;
		}
		/* a kernel after an upload, an upload after a kernel that reads what was there */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 1, &e), 0);
		assert_int_equal(dev_upload(DEV_REF(x, 0), two, 4 * N, &e), 0);
		assert_int_equal(scale(d, z, x, N, 1, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		assert_memory_equal(got, one, 4 * N);
		assert_int_equal(dev_download(got, DEV_REF(z, 0), 4 * N, &e), 0);
		assert_memory_equal(got, two, 4 * N);
		/* a block that is freed while a kernel still has to read it, and used again for an
		 * upload */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 2, &e), 0);
		const uint64_t at = rt_block_of(x)->at;
		dev_free(x);
		x = take(d, 4 * N);
		assert_int_equal(rt_block_of(x)->at, at);
		assert_int_equal(dev_upload(DEV_REF(x, 0), two, 4 * N, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 2 * one[k]);
		/* compute runs far enough to be waited for, while nobody asks for the upload its
		 * first kernel reads */
		for (int k = 0; k < N; k++)
			got[k] = 9;
		assert_int_equal(dev_upload(DEV_REF(x, 0), got, 4 * N, &e), 0);
		assert_int_equal(scale(d, y, x, N, 1, &e), 0);
		for (int k = 0; k < 2 * RT_MARKS * RT_MARK_EVERY; k++)
			assert_int_equal(scale(d, z, z, 1, 1, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(y, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 9);
		/* the same with an upload that nobody waited for, and a kernel that writes */
		dev_free(x);
		x = take(d, 4 * N);
		assert_int_equal(dev_zero(DEV_REF(x, 0), 4 * N, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(x, 0), 4 * N, &e), 0);
		for (int k = 0; k < N; k++)
			assert_true(got[k] == 0);
		/* a range onto itself, both ways; bytes that no word covers */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(x, 4), DEV_REF(x, 0), 4 * N - 4, &e), 0);
		assert_int_equal(dev_copy(DEV_REF(x, 0), DEV_REF(x, 8), 4 * N - 8, &e), 0);
		assert_int_equal(dev_zero(DEV_REF(x, 4 * N - 3), 3, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(x, 0), 4 * N, &e), 0);
		assert_memory_equal(got, one + 1, 4 * N - 8);
		assert_int_equal(((unsigned char *)got)[4 * N - 1], 0);
		/* more work than may be queued */
		assert_int_equal(dev_upload(DEV_REF(x, 0), one, 4 * N, &e), 0);
		const uint64_t finished = ((struct rt *)d->priv)->finished;
		for (int k = 0; k < 3 * RT_MARKS * RT_MARK_EVERY; k++)
			assert_int_equal(scale(d, k & 1 ? x : y, k & 1 ? y : x, 1, 1, &e), 0);
		assert_true(((struct rt *)d->priv)->finished > finished);
		assert_int_equal(dev_sync(d, &e), 0);
		mem_free(one);
		mem_free(two);
		mem_free(got);
		dev_free(x);
		dev_free(y);
		dev_free(z);
		dev_close(d);
	}
}

/* What kernels take, by their text, is what the host packs, by kernel.def. */
static void arguments_fit_the_text(void **state)
{
	static const int64_t widths[] = { 2, 100, 200 };
	bool seen[GPU_ENTRIES] = { false };
	struct buf text = BUF_INIT;
	struct dev_buf any = { 0 };
	struct err e = { 0 };
	(void)state;
	gpu_text(DT_F32, &text);
	for (int k = 0; k < K_COUNT + 1; k++)
		for (size_t w = 0; w < ARRAY_LEN(widths); w++) {
			const char *sig =
				k < K_COUNT ? dev_kernel_sig((enum dev_kernel)k) : GPU_GEMM_SIG;
			union dev_arg a[GPU_ARGS] = { 0 };
			struct gpu_step s[GPU_STEPS] = { { GPU_gemm, 1, 0 } };
			char packed[64] = "", taken[64];
			int n = 1;
			for (int i = 0; sig[i]; i++) {
				if (sig[i] == 'b')
					a[i].b.buf = &any;
				else if (sig[i] == 'i')
					a[i].i = k == K_cast ? DT_F16 : widths[w];
				strcat(packed, sig[i] == 'b' ? "pi" : sig[i] == 'f' ? "f" : "i");
			}
			if (k < K_COUNT)
				n = gpu_steps((enum dev_kernel)k, a, s, &e);
			if (n <= 0)
				fail_msg("%s: %s", dev_kernel_name((enum dev_kernel)k), e.msg);
			for (int i = 0; i < n; i++) {
				const char *name = gpu_entry_name(s[i].entry);
				if (!entry_signature(text.p, name, taken, sizeof taken))
					fail_msg("%s is not in the text", name);
				if (strcmp(packed, taken))
					fail_msg("%s takes %s and gets %s", name, taken, packed);
				seen[s[i].entry] = true;
			}
		}
	for (int i = 0; i < GPU_ENTRIES; i++)
		if (!seen[i])
			fail_msg("no kernel uses %s", gpu_entry_name((enum gpu_entry)i));
	buf_release(&text);
}

/* The one file in the cache whose name ends so. */
static void cached_file(const char *end, char *path, size_t most)
{
	char dir[256];
	const struct dirent *f;
	snprintf(dir, sizeof dir, "%s/heteroshard/kernels", cache);
	DIR *d = opendir(dir);
	assert_non_null(d);
	path[0] = 0;
	while ((f = readdir(d)))
		if (strlen(f->d_name) > strlen(end) &&
		    !strcmp(f->d_name + strlen(f->d_name) - strlen(end), end))
			snprintf(path, most, "%s/%s", dir, f->d_name);
	closedir(d);
	assert_true(path[0] != 0);
}

static void empty_cache(void)
{
	char command[300];
	snprintf(command, sizeof command, "rm -rf '%s/heteroshard'", cache);
	assert_int_equal(system(command), 0);
}

static int one_launch(const char *spec, struct err *e)
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

static void kernels_are_kept_and_refusals_explained(void **state)
{
	char path[512];
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		empty_cache();
		faults("compile");
		assert_int_equal(one_launch(specs[i], &e), ERR_DEVICE);
		has(e.msg, specs[i]);
		has(e.msg, "Fake card 0");
		has(e.msg, "does not compile the kernels");
		has(e.msg, "error: the first line the second the third (the whole log is in ");
		cached_file(".log", path, sizeof path);
		has(e.msg, path);
		err_clear(&e);
		faults("");
		assert_int_equal(one_launch(specs[i], &e), 0);
		/* now it is there: the compiler is not asked */
		faults("compile");
		assert_int_equal(one_launch(specs[i], &e), 0);
		/* damaged: it is */
		cached_file(".gpu", path, sizeof path);
		FILE *f = fopen(path, "r+");
		assert_non_null(f);
		fseek(f, 100, SEEK_SET);
		fputc('#', f);
		fclose(f);
		assert_int_equal(one_launch(specs[i], &e), ERR_DEVICE);
		faults("");
		err_clear(&e);
		assert_int_equal(one_launch(specs[i], &e), 0);
	}
}

static void compilers_that_do_not_fit(void **state)
{
	const struct rtc *r;
	struct err e = { 0 };
	(void)state;
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_86", 13, &r, &e), 0);
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_86", 12, &r, &e), ERR_UNSUPPORTED);
	has(e.msg, "is newer than the driver, which takes CUDA 12");
	assert_int_equal(rtc_open(RTC_NVRTC, "sm_52", 13, &r, &e), ERR_UNSUPPORTED);
	has(e.msg, "makes code for sm_75 and newer, this card is sm_52");
	err_clear(&e);
	/* a card that is newer than the compiler gets the text of the newest it knows, which the
	 * driver finishes */
	faults("arch=121");
	assert_int_equal(one_launch("cuda:0", &e), 0);
	faults("arch=52");
	assert_int_equal(one_launch("cuda:0", &e), ERR_UNSUPPORTED);
	has(e.msg, "cuda:0 (Fake card 0): NVRTC");
	faults("");
}

static void auto_takes_a_card_it_can_use(void **state)
{
	/* the second: CUDA's compiler does not know the card */
	static const char *const words[] = { "", "arch=52" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		char spec[DEV_SPEC];
		faults(words[i]);
		struct dev *d = open_card("auto");
		dev_spec(d, spec);
		assert_string_equal(spec, specs[i]);
		dev_close(d);
	}
	faults("");
}

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
			/* parts of a second count: 0 would be for ever */
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
			/* nothing more is asked of it, not even when it is closed */
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

/* HIP's runtime ends the process when a kernel fails: what is known is said before. */
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

/* A card with much to do is not one that hangs: the limit counts from what was last seen to
 * happen. */
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
		/* one launch that takes longer is */
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
		/* after a hang it is not waited for again, and nothing is written any more */
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
		assert_int_equal(dev_download_end(d, &e), 0); /* there is none any more */
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

static long asked(void)
{
	void *h = dlopen(getenv("HS_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
	const long *n = h ? dlsym(h, "fake_products") : NULL;
	assert_non_null(n);
	return *n;
}

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

/* What a library has not got, the portable kernel does, and the library is asked once. */
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

/* Memory that is spare goes back to the driver when a library or a launch finds none. */
static void no_memory_inside_the_driver(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (int k = 0; k < 2; k++) {
			struct err e = { 0 };
			struct dev *d = open_card(specs[i]);
			struct rt *c = d->priv;
			struct dev_buf *x = take(d, 64);
			multiply(d, 10, DT_F32);
			assert_int_equal(scale(d, x, x, 4, 1, &e), 0);
			dev_free(take(d, 4 * MIB));
			const uint64_t before = c->held;
			faults(k ? "blasfull" : "full");
			if (k)
				multiply(d, 10, DT_F32);
			else if (scale(d, x, x, 4, 1, &e) < 0)
				fail_msg("%s", e.msg);
			assert_true(c->held < before);
			/* with nothing to give it is an error */
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

/* A library without code for the card is passed over for the next one. */
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

/* What the program says with these settings, which are read once for a process. */
static void says(const char *settings, const char *word, const char *absent)
{
	char text[16384];
	assert_int_equal(said(text, sizeof text, settings), 0);
	if (word)
		has(text, word);
	if (absent && strstr(text, absent))
		fail_msg("'%s' is in: %s", absent, text);
}

/* rocBLAS ends the process where its folder lacks the files of a card; and it must use the same HIP
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
	/* a trial in another process; what went well is not tried again */
	snprintf(settings, sizeof settings,
		 "rm -rf '%s/trial'; XDG_CACHE_HOME='%s/trial' FAKE_RT=rocabort", cache, cache);
	says(settings, "hip: rocBLAS ended a trial process (signal 6)", NULL);
	says(settings, "hip:0", NULL);
	snprintf(settings, sizeof settings, "XDG_CACHE_HOME='%s/trial' FAKE_RT=''", cache);
	says(settings, "hip:0", "trial");
	says(settings, "hip:0", NULL);
}

/* The commonest first trouble with an AMD card: the user is in none of its groups. */
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

/* MI200 takes the smallest float16 numbers for 0: products of backward ask for the other way. The
 * stand-in is that card, and refuses any other flags. */
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
		/* a card of its own never has more free than there is */
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

static int prepare(void **state)
{
	(void)state;
	if (!mkdtemp(cache))
		return -1;
	setenv("XDG_CACHE_HOME", cache, 1);
	/* how many there are is asked once */
	struct err e = { 0 };
	faults("devices=2");
	if (backend_find("cuda")->count(&e) != 2 || backend_find("hip")->count(&e) != 2)
		return -1;
	faults("");
	return 0;
}

static void no_card(void **state)
{
	(void)state;
	skip();
}

static int tidy(void **state)
{
	(void)state;
	char command[300]; /* an OpenCL driver may keep its own things there */
	snprintf(command, sizeof command, "rm -rf '%s'", cache);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_are_listed),
		cmocka_unit_test(blocks_are_used_again),
		cmocka_unit_test(too_much_memory_is_explained),
		cmocka_unit_test(transfers_in_pieces),
		cmocka_unit_test(order_of_the_calls),
		cmocka_unit_test(arguments_fit_the_text),
		cmocka_unit_test(kernels_are_kept_and_refusals_explained),
		cmocka_unit_test(compilers_that_do_not_fit),
		cmocka_unit_test(auto_takes_a_card_it_can_use),
		cmocka_unit_test(products_without_the_library),
		cmocka_unit_test(a_card_that_hangs_or_is_lost),
		cmocka_unit_test(an_abort_names_the_card),
		cmocka_unit_test(a_slow_card_does_not_hang),
		cmocka_unit_test(downloads_end_wherever_they_are_asked_to),
		cmocka_unit_test(open_close_open),
		cmocka_unit_test(products_that_a_library_lacks),
		cmocka_unit_test(no_memory_inside_the_driver),
		cmocka_unit_test(sums_stay_float32),
		cmocka_unit_test(the_library_that_has_the_card),
		cmocka_unit_test(rocblas_that_would_not_do),
		cmocka_unit_test(a_card_that_the_user_may_not_open),
		cmocka_unit_test(float16_backward_on_mi200),
		cmocka_unit_test(memory_of_cards_that_share_it),
		cmocka_unit_test(a_card_before_the_processors_graphics),
	};
	const struct CMUnitTest none[] = { cmocka_unit_test(no_card) };
	return fake_cards("fake_rt.so", true) ? cmocka_run_group_tests(tests, prepare, tidy)
					      : cmocka_run_group_tests(none, NULL, NULL);
}
