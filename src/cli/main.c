/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program's entry: what belongs to a process, and then the command (commands.h). */
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/commit.h"
#include "cli/shell_words.h"

#include "base/log.h"
#include "base/os.h"
#include "dev/dev_watch.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A standard stream that is closed (as >&- does) gets a file with which reading or writing fails as
 * before. Else a file of the run, or a link, would have its number, and messages went into it. */
static void hold_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return;
}

/* True when the reader of the pipe has ended (as head does): this is no error. */
static bool reader_gone(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO };
	return errno == EPIPE || (poll(&p, 1, 0) == 1 && (p.revents & POLLERR));
}

static int finish(int status)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (!reader_gone())
		fprintf(stderr, "error: cannot write to standard output%s%s\n",
			errno ? ": " : " (is the disk full?)", errno ? strerror(errno) : "");
	return status ? status : 1;
}

/* GNU OpenMP's threads spin for seconds while they wait, which on a machine that is not idle (or
 * has a worker per card) slows all of them down. Spinning for some microseconds is as fast on an
 * idle machine. It can only be set in the environment at the start of the process. */
static void limit_spinning(char **argv)
{
	if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
	    setenv("GOMP_SPINCOUNT", "20000", 1) < 0)
		return;
	if (os_self_exe())
		execv(os_self_exe(), argv); /* when that fails, the program works all the same */
}

/* A call that waits for the device will never return: only the end of the process helps. */
static void end_hung(const char *line)
{
	log_error("%s; this process ends", line);
	_exit(1);
}

/* A vendor's library ends the process: which device was at work is said before. */
static void say_work(int sig)
{
	(void)sig;
	dev_work_say(STDERR_FILENO);
}

int main(int argc, char **argv)
{
	hold_streams();
	limit_spinning(argv);
	os_die_with_parent();
	signal(SIGPIPE, SIG_IGN);
	cli_log_start();
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (cli_level_word(argv[i])) {
			continue;
		} else if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-V")) {
			printf("heteroshard %s%s%s\n", HS_VERSION, HS_COMMIT[0] ? ", commit " : "",
			       HS_COMMIT);
			return finish(0);
		} else if (!strncmp(argv[i], "--help=", 7) &&
			   shell_words_print(argv[i] + 7, commands_run_at)) {
			return finish(0);
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			char *help[] = { "help", NULL };
			return finish(commands_run(1, help));
		} else {
			return cli_usage_error("unknown option '%.60s' (see heteroshard --help)",
					       argv[i]);
		}
	}
	if (omp_get_max_threads() > OS_THREADS_MOST) /* here too: `merge` opens no device */
		return cli_usage_error("OMP_NUM_THREADS asks for %d threads: at most %d are "
				       "possible",
				       omp_get_max_threads(), OS_THREADS_MOST);
	dev_watch_on_hang(end_hung);
	signal(SIGABRT, say_work);
	cli_name_lost_files();
	if (i == argc) {
		char *help[] = { "help", NULL };
		fflush(stdout);
		if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			return 2;
		commands_run(1, help);
		return finish(2);
	}
	return finish(commands_run(argc - i, argv + i));
}
