/* SPDX-License-Identifier: Apache-2.0 */
/* os.c - see os.h: processes that end with their parent, files of the
 * system, by POSIX alone. */
#include "base/os.h"

#include "base/err.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "HS_PARENT_PIPE" /* the number of the descriptor */

extern char **environ;

/* The environment with VARIABLE, made before fork(): after it nothing may be allocated. */
static char **environment_with(char *setting)
{
	size_t n = 0, kept = 0;
	while (environ[n])
		n++;
	char **env = mem_array(n + 2, sizeof *env);
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], VARIABLE "=", sizeof VARIABLE) != 0)
			env[kept++] = environ[i];
	if (env) {
		env[kept++] = setting;
		env[kept] = NULL;
	}
	return env;
}

int os_spawn_tied(const char *path, char *const *args, pid_t *pid_p, int *tie_p, struct err *e)
{
	return os_spawn_told(path, args, NULL, 0, pid_p, tie_p, e);
}

bool os_line_with(const char *root, const char *path, const char *begin, char *out, size_t n)
{
	char full[4200], line[1024];
	snprintf(full, sizeof full, "%.2000s%.2000s", root, path);
	FILE *f = fopen(full, "re");
	bool found = false;
	while (f && !found && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		found = !strncmp(line, begin, strlen(begin));
	}
	if (found && out)
		snprintf(out, n, "%s", line + strlen(begin));
	if (f)
		fclose(f);
	return found;
}

bool os_line(const char *root, const char *path, char *out, size_t n)
{
	return os_line_with(root, path, "", out, n);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

size_t os_names(const char *root, const char *path, const char *begin, char (*name_p)[OS_NAME],
		size_t most)
{
	char full[4200];
	size_t n = 0;
	snprintf(full, sizeof full, "%.2000s%.2000s", root, path);
	DIR *d = opendir(full);
	for (struct dirent *x; d && n < most && (x = readdir(d));)
		if (x->d_name[0] != '.' && !strncmp(x->d_name, begin, strlen(begin)))
			snprintf(name_p[n++], OS_NAME, "%.63s", x->d_name);
	if (d)
		closedir(d);
	qsort(name_p, n, OS_NAME, by_name);
	return n;
}

/* Whether a process has the socket with this number open. */
static bool has_socket(const char *pid, unsigned long inode)
{
	char path[2 * 320], to[64], want[64];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%s/fd", pid);
	snprintf(want, sizeof want, "socket:[%lu]", inode);
	DIR *d = opendir(path);
	for (struct dirent *x; d && !found && (x = readdir(d));) {
		snprintf(path, sizeof path, "/proc/%.200s/fd/%s", pid, x->d_name);
		ssize_t n = readlink(path, to, sizeof to - 1);
		to[n > 0 ? n : 0] = 0;
		found = !strcmp(to, want);
	}
	if (d)
		closedir(d);
	return found;
}

static unsigned long listening_socket(const char *table, unsigned port)
{
	char line[512];
	unsigned long found = 0;
	FILE *f = fopen(table, "re");
	while (f && !found && fgets(line, sizeof line, f)) {
		unsigned long inode;
		unsigned at, state;
		if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu", &at,
			   &state, &inode) == 3 &&
		    at == port && state == 10)
			found = inode;
	}
	if (f)
		fclose(f);
	return found;
}

bool os_listener(unsigned port, pid_t *pid_p, char name_p[OS_NAME])
{
	unsigned long inode = listening_socket("/proc/net/tcp", port);
	bool found = false;
	if (!inode)
		inode = listening_socket("/proc/net/tcp6", port);
	DIR *d = inode ? opendir("/proc") : NULL;
	for (struct dirent *x; d && !found && (x = readdir(d));) {
		char path[320];
		if (x->d_name[0] < '1' || x->d_name[0] > '9' || !has_socket(x->d_name, inode))
			continue;
		found = true;
		*pid_p = (pid_t)strtol(x->d_name, NULL, 10);
		snprintf(path, sizeof path, "/proc/%s/comm", x->d_name);
		if (!os_line("", path, name_p, OS_NAME))
			name_p[0] = 0;
	}
	if (d)
		closedir(d);
	return found;
}

/* Whole, or false with errno. The reader may be gone, and that is no signal to this process. */
static bool write_all(int fd, const void *p, size_t n)
{
	sigset_t broken, pending, before;
	sigemptyset(&broken);
	sigaddset(&broken, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &broken, &before);
	const ssize_t k = write(fd, p, n); /* it fits the empty pipe */
	const int code = errno;
	if (k < 0 && code == EPIPE && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE))
		sigwait(&broken, &(int){ 0 });
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = code;
	return k == (ssize_t)n;
}

int os_spawn_told(const char *path, char *const *args, const void *say, size_t n, pid_t *pid_p,
		  int *tie_p, struct err *e)
{
	int ends[2];
	const uint32_t length = (uint32_t)n;
	if (n > OS_SAID)
		return err_set(e, ERR_INTERNAL, "starting '%s': %zu bytes to tell it, at most %d",
			       path, n, OS_SAID);
	char setting[sizeof VARIABLE + 16];
	if (pipe(ends) < 0)
		return err_sys(e, errno, "starting '%s'", path);
	fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	snprintf(setting, sizeof setting, VARIABLE "=%d", ends[0]);
	char **env = environment_with(setting);
	if (!env) {
		close(ends[0]);
		close(ends[1]);
		return err_nomem(e, sizeof *env, "an environment");
	}
	const pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		fcntl(ends[0], F_SETFD, 0);
		execve(path, args, env);
		raise(SIGKILL);
	}
	const int code = errno;
	mem_free(env);
	close(ends[0]);
	if (pid < 0) {
		close(ends[1]);
		return err_sys(e, code, "starting '%s'", path);
	}
	/* A child that is gone already is found by waitpid(). */
	if (write_all(ends[1], &length, sizeof length) && n)
		write_all(ends[1], say, n);
	*pid_p = pid;
	*tie_p = ends[1];
	return 0;
}

static int watched = -1;
static unsigned char said[OS_SAID];
static size_t nsaid;

/* false: the parent is gone, or says what no parent says. */
static bool read_all(void *to, size_t n)
{
	for (char *at = to; n;) {
		const ssize_t k = read(watched, at, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += k;
		n -= (size_t)k;
	}
	return true;
}

/* The first thing in the pipe. */
static bool listen_to_parent(void)
{
	uint32_t length;
	if (!read_all(&length, sizeof length) || length > sizeof said || !read_all(said, length))
		return false;
	nsaid = length;
	return true;
}

static void *watch(void *ctx)
{
	char c;
	ssize_t n;
	(void)ctx;
	while ((n = read(watched, &c, 1)) > 0 || (n < 0 && errno == EINTR))
		;
	kill(getpid(), SIGKILL);
	return NULL;
}

static void begin(void)
{
	const char *s = getenv(VARIABLE);
	char *end;
	pthread_t t;
	pthread_attr_t attr;
	sigset_t all, before;
	if (!s || !*s)
		return;
	const long fd = strtol(s, &end, 10);
	if (*end || fd < 0 || fd > 1 << 20 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return;
	watched = (int)fd;
	unsetenv(VARIABLE); /* this process's own children must not inherit it */
	if (!listen_to_parent())
		kill(getpid(), SIGKILL); /* as if it had ended later */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 64 << 10);
	sigfillset(&all); /* signals are for the other threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&t, &attr, watch, NULL))
		kill(getpid(), SIGKILL); /* no worker may stay behind */
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

const void *os_parent_said(size_t *n_p)
{
	os_die_with_parent();
	*n_p = nsaid;
	return nsaid ? said : NULL;
}

void os_parent_forget(void)
{
	volatile unsigned char *p = said;
	for (size_t i = 0; i < sizeof said; i++)
		p[i] = 0;
	nsaid = 0;
}

bool os_die_with_parent(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, begin);
	return watched >= 0;
}
