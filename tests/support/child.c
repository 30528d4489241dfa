/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - see child.h. */
#include "support/child.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct child child_new(void (*what)(const char *text), uid_t uid)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	struct child c = { .pid = fork(), .fd = p[1] };
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		char text[NET_ADDRESS];
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
		close(p[1]);
		if (read(p[0], text, sizeof text) != sizeof text)
			_exit(0);
		if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
			_exit(9);
		what(text);
		_exit(0);
	}
	close(p[0]);
	return c;
}

void child_tell(struct child *c, const char *text)
{
	char all[NET_ADDRESS] = { 0 };
	snprintf(all, sizeof all, "%s", text);
	assert_int_equal(write(c->fd, all, sizeof all), sizeof all);
	close(c->fd);
}

int child_end(struct child *c)
{
	int status;
	waitpid(c->pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

int child_run(struct child *c, const char *text)
{
	child_tell(c, text);
	return child_end(c);
}

void one_thread_each(char **argv)
{
	if (getenv("OMP_NUM_THREADS"))
		return;
	setenv("OMP_NUM_THREADS", "1", 1);
	execv("/proc/self/exe", argv);
}

long memory_kib(pid_t pid, const char *what)
{
	char path[64], line[256];
	long kib = -1;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, what, strlen(what)) && line[strlen(what)] == ':')
			kib = strtol(line + strlen(what) + 1, NULL, 10);
	fclose(f);
	assert_true(kib >= 0);
	return kib;
}

bool memory_counts(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return true;
#endif
}
