/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_fleet.c - what a machine that `up`, `status`, `logs` and `down` reach over ssh answers, and
 * what a process at a control socket answers, down to what is printed. The input stands in for the
 * output of ssh: the functions that start a program are replaced.
 *
 * Byte 0 chooses the command (status, status --json, logs, up, down; 8: the control socket speaks
 * too; 16: it is what a job of this process is asked), byte 1 the exit status of ssh. Then come
 * standard output, standard error and the words of the control socket, each up to a byte 0xff.
 * Everything printed is text: no character that a terminal could take for a command. */
#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "ops/control.h"
#include "starve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int cmd_status(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_down(int argc, char **argv);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

enum { PART = 60000 /* fits a pipe */ };

static struct part {
	const uint8_t *p;
	size_t n;
} out, err, control;
static int exit_status;
static char folder[64], config[128];

/* ---- what stands in for ssh ----------------------------------------------------------------- */

static int of_child[3];

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *a, int fd, int to)
{
	(void)a;
	of_child[to] = fd;
	return 0;
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *a,
		 const posix_spawnattr_t *t, char *const argv[], char *const env[])
{
	(void)file, (void)a, (void)t, (void)env;
	MUST(!strcmp(argv[0], "ssh"));
	MUST(write(of_child[1], out.p, out.n) == (ssize_t)out.n);
	MUST(write(of_child[2], err.p, err.n) == (ssize_t)err.n);
	*pid = 1 << 30; /* nobody's */
	return 0;
}

pid_t waitpid(pid_t pid, int *status_p, int options)
{
	(void)options;
	MUST(pid == 1 << 30);
	*status_p = exit_status << 8;
	return pid;
}

/* ---- what stands in for another job --------------------------------------------------------- */

static void *serve(void *ctx)
{
	const int fd = *(int *)ctx;
	for (;;) {
		char word[64];
		int c = accept(fd, NULL, NULL);
		if (c < 0)
			continue;
		if (recv(c, word, sizeof word, 0) > 0)
			send(c, control.p, control.n, MSG_NOSIGNAL);
		close(c);
	}
	return NULL;
}

/* Says the first bytes to a job of this process, and drops what it answers. */
static void ask_job(const struct part *say)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char answer[256];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%s/heteroshard/run-1-%ld.sock", folder,
		 (long)getpid());
	MUST(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
	send(fd, say->p, say->n < 64 ? say->n : 64, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while (recv(fd, answer, sizeof answer, 0) > 0)
		;
	close(fd);
}

/* ---- running -------------------------------------------------------------------------------- */

static void must_be_text(const char *p, size_t n)
{
	char *s = malloc(n + 1);
	MUST(s);
	memcpy(s, p, n);
	s[n] = 0;
	MUST(strlen(s) == n);
	for (char *line = s, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		char *same = strdup(line);
		MUST(same);
		text_safe_str(same, TEXT_PROSE);
		MUST(!strcmp(same, line));
		free(same);
	}
	free(s);
}

static struct part next(const uint8_t **p, const uint8_t *end)
{
	const uint8_t *stop = *p < end ? memchr(*p, 0xff, (size_t)(end - *p)) : NULL;
	struct part a = { *p, (size_t)((stop ? stop : end) - *p) };
	*p = stop ? stop + 1 : end;
	a.n = a.n < PART ? a.n : PART;
	return a;
}

static void once(const uint8_t *data, size_t size)
{
	char name[] = "x", json[] = "--json";
	char *plain[] = { name, config, NULL }, *with[] = { name, json, config, NULL };
	const uint8_t *at = data + 2, *end = data + size;
	char path[128];
	struct stat st;
	if (size < 2)
		return;
	exit_status = data[1];
	out = next(&at, end);
	err = next(&at, end);
	control = next(&at, end);
	if (data[0] & 16)
		ask_job(&control);
	snprintf(path, sizeof path, "%s/heteroshard/fuzz-1.sock", folder);
	char hidden[140];
	snprintf(hidden, sizeof hidden, "%s.off", path);
	if (data[0] & 8 && stat(hidden, &st) == 0)
		MUST(rename(hidden, path) == 0);
	else if (!(data[0] & 8) && stat(path, &st) == 0)
		MUST(rename(path, hidden) == 0);
	char *text[2] = { NULL, NULL };
	size_t n[2] = { 0, 0 };
	FILE *before[2] = { stdout, stderr };
	stdout = open_memstream(&text[0], &n[0]);
	stderr = open_memstream(&text[1], &n[1]);
	if (stdout && stderr)
		switch (data[0] % 8) {
		case 0:
		case 5:
			cmd_status(2, plain);
			break;
		case 1:
		case 6:
			cmd_status(3, with);
			break;
		case 2:
		case 7:
			cmd_logs(2, plain);
			break;
		case 3:
			cmd_up(2, plain);
			break;
		default:
			cmd_down(2, plain);
			break;
		}
	for (int i = 0; i < 2; i++) {
		FILE *f = i ? stderr : stdout;
		if (f)
			fclose(f);
	}
	stdout = before[0];
	stderr = before[1];
	for (int i = 0; i < 2; i++) {
		if (text[i])
			must_be_text(text[i], n[i]);
		free(text[i]);
	}
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f)
{
	(void)s, (void)kind, (void)f;
	return remove(path);
}

static void clean(void) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static int fd;
	pthread_t thread;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char at[100];
	(void)argc, (void)argv;
	signal(SIGPIPE, SIG_IGN); /* as main() does */
	snprintf(folder, sizeof folder, "/tmp/hs-fuzz-fleet-XXXXXX");
	MUST(mkdtemp(folder));
	atexit(clean);
	setenv("HOME", folder, 1);
	setenv("XDG_CONFIG_HOME", folder, 1);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	setenv("NO_COLOR", "1", 1);
	snprintf(at, sizeof at, "%s/heteroshard", folder);
	MUST(mkdir(at, 0700) == 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%s/fuzz-1.sock", at);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0);
	MUST(pthread_create(&thread, NULL, serve, &fd) == 0);
	static struct control *job; /* to the end */
	struct err e = { 0 };
	MUST(control_open("runs/run 1/", &job, &e) >= 0);
	control_state(job, "{\"output_dir\": \"run 1\", \"workers\": [{\"id\": \"a\"}]}");
	snprintf(config, sizeof config, "%s/c.yaml", folder);
	FILE *f = fopen(config, "w");
	MUST(f);
	fputs("base_model: m\ndatasets: [{path: d.jsonl, type: alpaca}]\noutput_dir: run\n"
	      "insecure: true\ncoordinator: {ip: 192.0.2.1}\nmin_workers: 1\n"
	      "workers:\n  - {id: box2, ip: 192.0.2.2, ssh: u@192.0.2.2, device: cpu}\n"
	      "  - {id: box3, ip: 192.0.2.3, ssh: 'u@192.0.2.3:23', device: auto}\n",
	      f);
	fclose(f);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	starve(once, data, size);
	return 0;
}
