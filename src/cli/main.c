/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program's entry: finds the subcommand, installs the sink of messages, returns the
 * exit status. */
#include "cli/cli.h"

#include "base/log.h"
#include "base/os.h"
#include "dev/dev_watch.h"
#include "base/mem.h"
#include "report/progress.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND(name, help) int cmd_##name(int argc, char **argv);
#include "cli/command.def"
#undef COMMAND

const struct command commands[] = {
#define COMMAND(name, help) { #name, help, cmd_##name },
#include "cli/command.def"
#undef COMMAND
	{ NULL, NULL, NULL },
};

static void log_to_stderr(void *ctx, enum log_level level, const char *line)
{
	static const char *const plain[] = { "debug: ", "", "warning: ", "error: " };
	static const char *const colour[] = { "\033[2mdebug: ", "", "\033[33mwarning:\033[0m ",
					      "\033[31merror:\033[0m " };
	struct progress *progress = *(struct progress *const *)ctx;
	bool c = cli_colour(stderr);
	char text[2200];
	snprintf(text, sizeof text, "%s%s%s", c ? colour[level] : plain[level], line,
		 c && level == LOG_DEBUG ? "\033[0m" : "");
	if (progress)
		progress_line(progress, text);
	else
		fprintf(stderr, "%s\n", text);
}

static struct progress *shown;

void cli_set_progress(struct progress *p) { shown = p; }

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

static int refuse_command(const char *name)
{
	const char *names[64];
	size_t n = 0;
	for (size_t i = 0; commands[i].name && n + 1 < ARRAY_LEN(names); i++)
		names[n++] = commands[i].name;
	names[n] = NULL;
	const char *near = opt_nearest_word(names, name);
	if (near)
		return cli_usage_error("unknown command '%.60s', did you mean '%s'?", name, near);
	return cli_usage_error("unknown command '%.60s' (see heteroshard --help)", name);
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
	limit_spinning(argv);
	os_die_with_parent();
	signal(SIGPIPE, SIG_IGN);
	log_set_sink(log_to_stderr, &shown, LOG_INFO);
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (cli_level_word(argv[i])) {
			continue;
		} else if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-V")) {
			printf("heteroshard %s\n", HS_VERSION);
			return finish(0);
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			char *help[] = { "help", NULL };
			return finish(cmd_help(1, help));
		} else {
			return cli_usage_error("unknown option '%.60s' (see heteroshard --help)",
					       argv[i]);
		}
	}
	dev_watch_on_hang(end_hung);
	signal(SIGABRT, say_work);
	if (i == argc) {
		char *help[] = { "help", NULL };
		fflush(stdout);
		if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			return 2;
		cmd_help(1, help);
		return finish(2);
	}
	for (size_t k = 0; commands[k].name; k++)
		if (!strcmp(commands[k].name, argv[i]))
			return finish(commands[k].run(argc - i, argv + i));
	return refuse_command(argv[i]);
}
