/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_atomic.c - files and folders appear whole or not at all: also on a full disk, over an
 * old file, beside a leftover. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void same(const char *path, const char *text)
{
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	assert_int_equal(buf_read_file(&b, path, 0, &e), 0);
	assert_string_equal(b.p, text);
	buf_release(&b);
}

static bool exists(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

static void test_write(void **state)
{
	(void)state;
	struct err e = { 0 };
	const char *p = scratch("file");
	assert_int_equal(atomic_write_file(p, "old", 3, &e), 0);
	same(p, "old");
	struct atomic_file f;
	assert_int_equal(atomic_begin(p, &f, &e), 0);
	assert_int_equal(atomic_write(&f, "new", 3, &e), 0);
	same(p, "old"); /* not before the commit */
	assert_int_equal(atomic_write(&f, "er", 2, &e), 0);
	assert_int_equal(atomic_commit(&f, &e), 0);
	same(p, "newer");
	assert_false(exists(scratch("file.tmp")));
	assert_int_equal(atomic_begin(p, &f, &e), 0);
	assert_int_equal(atomic_write(&f, "lost", 4, &e), 0);
	atomic_abort(&f);
	same(p, "newer");
	assert_false(exists(scratch("file.tmp")));
	scratch_text(scratch("file.tmp"), "what a crash left behind, longer than what comes");
	assert_int_equal(atomic_write_file(p, "last", 4, &e), 0);
	same(p, "last");
}

/* Several processes write one file: whoever reads it sees one of their texts, whole. */
static void test_many_writers(void **state)
{
	(void)state;
	enum { WRITERS = 4, TIMES = 30 };
	static char text[WRITERS][40000];
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	char path[512];
	pid_t pid[WRITERS];
	snprintf(path, sizeof path, "%s", scratch("shared"));
	assert_int_equal(atomic_write_file(path, "a", 1, &e), 0);
	for (int w = 0; w < WRITERS; w++) {
		size_t n = 10000 * (size_t)(w + 1);
		memset(text[w], 'a' + w, n);
		pid[w] = fork();
		assert_true(pid[w] >= 0);
		if (pid[w])
			continue;
		int bad = 0;
		for (int i = 0; i < TIMES; i++)
			bad |= atomic_write_file(path, text[w], n, &e) < 0;
		_exit(bad);
	}
	for (int i = 0; i < 300; i++) {
		buf_reset(&b);
		assert_int_equal(buf_read_file(&b, path, 1 << 20, &e), 0);
		int w = b.p[0] - 'a';
		assert_true(w >= 0 && w < WRITERS && (b.n == 10000 * (size_t)(w + 1) || b.n == 1));
		assert_int_equal(b.p[b.n - 1], b.p[0]);
	}
	for (int w = 0; w < WRITERS; w++) {
		int status;
		assert_int_equal(waitpid(pid[w], &status, 0), pid[w]);
		assert_int_equal(status, 0);
	}
	assert_false(exists(scratch("shared.tmp")));
	buf_release(&b);
}

/* A limit on the size of files stands in for a full disk: write() fails in the middle. */
static void test_full_disk(void **state)
{
	(void)state;
	struct err e = { 0 };
	const char *p = scratch("full");
	struct rlimit old, small;
	char *big = calloc(1, 100000);
	assert_int_equal(atomic_write_file(p, "old", 3, &e), 0);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 65536;
	setrlimit(RLIMIT_FSIZE, &small);
	int rc = atomic_write_file(p, big, 100000, &e);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, ERR_IO);
	assert_non_null(strstr(e.msg, "full"));
	same(p, "old");
	assert_false(exists(scratch("full.tmp")));
	struct atomic_file f = { -1, NULL, NULL };
	assert_int_equal(atomic_begin("/dev/shm", &f, &e), ERR_IO); /* a folder */
	assert_int_equal(atomic_begin(scratch("nowhere/at/all"), &f, &e), ERR_IO);
	free(big);
}

static void test_folder(void **state)
{
	(void)state;
	struct err e = { 0 };
	const char *p = scratch("checkpoints/step-1");
	char *tmp = NULL;
	assert_int_equal(dir_make(scratch("checkpoints"), &e), 0);
	assert_int_equal(dir_make(scratch("checkpoints"), &e), 0);
	assert_int_equal(dir_make(scratch("a//b/c/"), &e), 0);
	assert_true(exists(scratch("a/b/c")));
	scratch_text(scratch("blocked"), "x");
	assert_int_equal(dir_make(scratch("blocked/b"), &e), ERR_IO);
	scratch_text(scratch("checkpoints/step-1.tmp/half"), "x");
	assert_int_equal(atomic_dir_begin(p, &tmp, &e), 0);
	assert_false(exists(scratch("checkpoints/step-1.tmp/half")));
	scratch_text(scratch("checkpoints/step-1.tmp/sub/file"), "inside");
	assert_false(exists(p));
	assert_int_equal(atomic_dir_commit(p, tmp, &e), 0);
	mem_free(tmp);
	same(scratch("checkpoints/step-1/sub/file"), "inside");
	assert_int_equal(atomic_dir_begin(p, &tmp, &e), 0);
	assert_int_equal(atomic_dir_commit(p, tmp, &e), ERR_IO); /* there already */
	mem_free(tmp);
}

static void test_remove(void **state)
{
	(void)state;
	struct err e = { 0 };
	scratch_text(scratch("outside/keep"), "safe");
	scratch_text(scratch("tree/a/b/c"), "x");
	assert_int_equal(symlink(scratch("outside"), scratch("tree/a/link")), 0);
	assert_int_equal(symlink(scratch("outside"), scratch("top")), 0);
	assert_int_equal(dir_remove(scratch("tree"), &e), 0);
	assert_false(exists(scratch("tree")));
	assert_int_equal(dir_remove(scratch("top"), &e), ERR_IO);
	same(scratch("outside/keep"), "safe");
	assert_int_equal(dir_remove(scratch("tree"), &e), 0); /* missing is fine */
	assert_int_equal(dir_remove(scratch("outside/keep"), &e), ERR_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),     cmocka_unit_test(test_many_writers),
		cmocka_unit_test(test_full_disk), cmocka_unit_test(test_folder),
		cmocka_unit_test(test_remove),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
