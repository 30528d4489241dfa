/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - see commands.h; and hs_command() of the public interface, by which a program does
 * what the command line does: the same commands, with the program's functions in place of the
 * streams of a process, and without its signals. */
#include "cli/commands.h"

#include "api/api_config.h"
#include "cli/cli.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/os_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND(name, help) int cmd_##name(int argc, char **argv);
#include "cli/command.def"
#undef COMMAND

static int (*const run[])(int argc, char **argv) = {
/* of commands[], in its order */
#define COMMAND(name, help) cmd_##name,
#include "cli/command.def"
#undef COMMAND
};

/* The place of a command in commands[], -1: there is none of this name. */
static int find_command(const char *name)
{
	for (int k = 0; commands[k].name; k++)
		if (!strcmp(commands[k].name, name))
			return k;
	return -1;
}

/* `help COMMAND` is `COMMAND --help`: the place of COMMAND, -1 for all else. */
static int find_explained(int argc, char **argv)
{
	int k = -1;
	if (strcmp(argv[0], "help"))
		return -1;
	for (int i = 1; i < argc; i++) {
		if (cli_level_word(argv[i]))
			continue;
		if (k >= 0 || (k = find_command(argv[i])) < 0)
			return -1;
	}
	return k;
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

int commands_run_at(int command, int argc, char **argv) { return run[command](argc, argv); }

int commands_run(int argc, char **argv)
{
	const int k = find_command(argv[0]), explained = find_explained(argc, argv);
	if (explained >= 0) {
		char help[] = "--help", *words[] = { (char *)commands[explained].name, help, NULL };
		return run[explained](2, words);
	}
	return k < 0 ? refuse_command(argv[0]) : run[k](argc, argv);
}

/* ---- hs_command() ---- */

static ssize_t write_to(int (*fn)(void *, const char *, size_t), void *ctx, const char *text,
			size_t n)
{
	return fn && fn(ctx, text, n) ? -1 : (ssize_t)n;
}

static ssize_t write_out(void *cookie, const char *text, size_t n)
{
	const hs_io *io = cookie;
	return write_to(io->out, io->ctx, text, n);
}

static ssize_t write_err(void *cookie, const char *text, size_t n)
{
	const hs_io *io = cookie;
	return write_to(io->err, io->ctx, text, n);
}

/* Copies of the words; NULL: memory is out. */
static char **copy_words(const char *const *word, size_t words, struct arena *a)
{
	char **argv = arena_alloc(a, (words + 1) * sizeof *argv);
	for (size_t i = 0; argv && i < words; i++)
		if (!(argv[i] = arena_strdup(a, word[i])))
			return NULL;
	if (argv)
		argv[words] = NULL;
	return argv;
}

/* The program in PATH, in the arena; its name where it is not there. */
static const char *find_program(struct arena *a)
{
	static const char name[] = "heteroshard";
	const char *path = getenv("PATH");
	char file[4096];
	while (path && *path) {
		const size_t n = strcspn(path, ":");
		snprintf(file, sizeof file, "%.*s/%s", (int)(n < 4000 ? n : 4000), path, name);
		if (access(file, X_OK) == 0)
			return arena_strdup(a, file);
		path += n + (path[n] == ':');
	}
	return name;
}

static int run_inside(hs_io *io, size_t words, char **argv, struct arena *a, int *status_p,
		      struct err *e)
{
	const char *program = io->program ? io->program : find_program(a);
	if (!program)
		return err_nomem(e, 4096, "a path");
	struct cli_inside in = { .out = os_stream(io, write_out),
				 .err = os_stream(io, write_err),
				 .input = io->input,
				 .ninput = io->input ? io->input_size : 0,
				 .stop = (const volatile sig_atomic_t *)io->stop,
				 .program = program };
	const enum log_level least = log_least();
	const volatile sig_atomic_t never = 0;
	if (!in.stop)
		in.stop = &never;
	const bool open = in.out && in.err;
	if (open) {
		cli_level_forget();
		cli_go_inside(&in);
		*status_p = commands_run((int)words, argv);
		cli_go_inside(NULL);
		log_set_least(least);
	}
	bool lost = in.out && fclose(in.out);
	if (in.err && fclose(in.err))
		lost = true;
	if (!open)
		return err_nomem(e, sizeof in, "a command");
	*e = in.failed;
	return in.failed.code ? in.failed.code
	       : lost ? err_set(e, ERR_CANCELLED, "'%s': the function that takes its text failed",
				argv[0])
		      : 0;
}

int hs_command(const char *const *word, size_t words, const hs_io *io, int *status_p, hs_error *out)
{
	struct err e = { 0 };
	struct arena a = ARENA_INIT;
	hs_io own = hs_io_init();
	int status = 0;
	if (!word || !words || words > 1000 || (io && !api_take(&own, sizeof own, io, sizeof own)))
		return api_refuse(out, ERR_USAGE,
				  "hs_command: there are no words, or the io has no `size`: use "
				  "hs_io_init()");
	for (size_t i = 0; i < words; i++)
		if (!word[i])
			return api_refuse(out, ERR_USAGE, "hs_command: a word is NULL");
	if (!api_run_begin())
		return api_refuse(out, ERR_USAGE, "another run is going on in this process");
	char **argv = copy_words(word, words, &a);
	const int rc = argv ? run_inside(&own, words, argv, &a, &status, &e)
			    : err_nomem(&e, words * sizeof *argv, "a command");
	api_run_end();
	if (status_p)
		*status_p = status;
	arena_release(&a);
	return rc < 0 ? api_error(&e, out) : 0;
}
