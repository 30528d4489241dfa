/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_help.c - `heteroshard help [COMMAND | config]`. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/mem.h"
#include "job/config.h"

#include <string.h>

int cmd_help(int argc, char **argv);

struct args {
	bool markdown;
};

static const struct opt rows[] = {
	{ .key = "markdown",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, markdown),
	  .help = "with 'config': as Markdown, the text of docs/configuration.md" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard help [COMMAND | config]",
	.about = "Explains a command as its --help does, or all keys of a configuration file.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
};

static void print_overview(void)
{
	printf("heteroshard %s: fine-tune large language models across unlike devices\n\n"
	       "usage: heteroshard [-v | -q] COMMAND ...\n\n",
	       HS_VERSION);
	for (size_t i = 0; commands[i].name; i++)
		printf("  %-12s%s\n", commands[i].name, commands[i].help);
	printf("\n"
	       "  -v, --verbose  show more messages            -q, --quiet  only warnings and "
	       "errors\n"
	       "  --version      print the version             --help       this text; COMMAND "
	       "--help for one command\n\n"
	       "Exit status: 0, 1 when something failed, 2 when it was called wrongly.\n");
}

int cmd_help(int argc, char **argv)
{
	struct args args = { 0 };
	struct arena a = ARENA_INIT;
	int npos = 0, status;
	bool go = cli_args(&usage, argc, argv, &args, 0, 1, &npos, &a, &status);
	arena_release(&a);
	if (!go)
		return status;
	if (npos == 0) {
		print_overview();
		return 0;
	}
	if (!strcmp(argv[1], "config")) {
		struct buf b = BUF_INIT;
		config_reference(args.markdown, &b);
		fwrite(b.p, 1, b.n, stdout);
		buf_release(&b);
		return 0;
	}
	const char *names[64] = { "config" };
	size_t n = 1;
	for (size_t i = 0; commands[i].name; i++) {
		if (!strcmp(commands[i].name, argv[1])) {
			char help[] = "--help", *words[] = { argv[1], help, NULL };
			return commands[i].run(2, words);
		}
		if (n + 1 < ARRAY_LEN(names))
			names[n++] = commands[i].name;
	}
	const char *near = opt_nearest_word(names, argv[1]);
	return cli_usage_error("no help for '%.60s'%s%s%s", argv[1],
			       near ? ", did you mean '" : " (see heteroshard --help)",
			       near ? near : "", near ? "'?" : "");
}
