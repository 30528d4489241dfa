/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation (`generate` without --prompt) on a terminal: the arrow keys bring back earlier
 * lines, /exit ends it. */
#include "base/buf.h"
#include "base/err.h"

#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "tests/golden/models/smollm2"

/* What the program has written until `what` is there for the n-th time; -1: it ended before. */
static int read_until(int fd, struct buf *b, const char *what, int n)
{
	for (;;) {
		int seen = 0;
		for (const char *s = b->n ? b->p : ""; (s = strstr(s, what)); s++)
			seen++;
		if (seen >= n)
			return 0;
		char part[4096];
		ssize_t got = read(fd, part, sizeof part);
		if (got <= 0)
			return -1;
		buf_add(b, part, (size_t)got);
	}
}

static void type(int fd, const char *keys)
{
	assert_int_equal(write(fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static bool has_libedit(const char *program)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	if (buf_read_file(&b, program, 0, &e) < 0)
		fail_msg("%s", e.msg);
	bool has = memmem(b.p, b.n, "libedit.so", 10) != NULL;
	buf_release(&b);
	return has;
}

static void arrow_keys_and_exit(void **state)
{
	(void)state;
	const char *program = getenv("HS_BIN");
	struct buf b = BUF_INIT;
	int fd, status = 0;
	assert_non_null(program);
	if (!has_libedit(program)) {
		printf("skipped: built without libedit\n");
		skip();
	}
	fflush(NULL);
	pid_t pid = forkpty(&fd, NULL, NULL, NULL);
	assert_true(pid >= 0);
	if (!pid) {
		setenv("NO_COLOR", "1", 1);
		setenv("LC_ALL", "C.UTF-8", 1);
		setenv("TERM", "xterm", 1);
		execl(program, program, "generate", MODEL, "--max-new-tokens", "1", NULL);
		_exit(127);
	}
	if (read_until(fd, &b, "> ", 1) < 0)
		fail_msg("no prompt: %s", b.n ? b.p : "");
	type(fd, "/alph\303\244\r"); /* answered without the model */
	assert_int_equal(read_until(fd, &b, "'/alph\303\244' is no command", 1), 0);
	type(fd, "/beta\r");
	assert_int_equal(read_until(fd, &b, "'/beta' is no command", 1), 0);
	type(fd, "\033[A\033[A\r"); /* two lines up */
	if (read_until(fd, &b, "'/alph\303\244' is no command", 2) < 0)
		fail_msg("%s", b.p);
	type(fd, "/exit\r");
	while (read_until(fd, &b, "never", 1) == 0)
		;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	buf_release(&b);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrow_keys_and_exit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
