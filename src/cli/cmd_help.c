/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_help.c - `heteroshard help [COMMAND | config [KEY]]`. `help COMMAND` is `COMMAND --help`,
 * which main.c runs. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/config_keys.h"

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
	.synopsis = "heteroshard help [COMMAND | config [KEY]]",
	.about = "Explains a command as its --help does, or all keys of a configuration file, or "
		 "one of them.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
};

static void print_overview(void)
{
	fprintf(cli_out(),
		"heteroshard %s: fine-tune large language models across unlike devices\n\n"
		"usage: heteroshard [-v | -q] COMMAND ...\n\n",
		HS_VERSION);
	for (size_t i = 0; commands[i].name; i++)
		fprintf(cli_out(), "  %-12s%s\n", commands[i].name, commands[i].help);
	fprintf(cli_out(),
		"\n"
		"  -v, --verbose  show more messages            -q, --quiet  only warnings and "
		"errors\n"
		"  --version      print the version             --help       this text; COMMAND "
		"--help for one command\n\n"
		"Exit status: 0, 1 when something failed, 2 when it was called wrongly.\n");
}

/* One key: its line of the reference, and what each of its words means. */
static int explain_key(const char *word)
{
	size_t n;
	const struct opt *keys = config_rows(&n), *r = opt_find(keys, n, word);
	if (!r) {
		const char *near = config_key_near(word);
		return cli_usage_error("there is no key '%.60s'%s%s%s", word,
				       near ? ", did you mean '" : " (see heteroshard help config)",
				       near ? near : "", near ? "'?" : "");
	}
	struct opt alone = *r;
	alone.section = NULL;
	struct buf b = BUF_INIT;
	opt_help(&alone, 1, false, &b);
	const char *name, *help;
	for (size_t i = 0; r->names && (name = r->names->at(i, &help)); i++)
		buf_addf(&b, "%s    %-14s %s\n", i ? "" : "\n", name, help);
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
	return 0;
}

static int explain(const struct args *args, int npos, char **argv)
{
	if (npos == 0) {
		print_overview();
		return 0;
	}
	if (!strcmp(argv[1], "config") && npos == 2)
		return explain_key(argv[2]);
	if (npos == 2)
		return cli_usage_error("help: '%.60s' is one argument too many; usage: %s", argv[2],
				       usage.synopsis);
	if (!strcmp(argv[1], "config")) {
		struct buf b = BUF_INIT;
		config_reference(args->markdown, &b);
		if (args->markdown)
			config_keys_markdown(&b);
		fwrite(b.p, 1, b.n, cli_out());
		buf_release(&b);
		return 0;
	}
	const char *names[64] = { "config" };
	size_t n = 1, nrows;
	for (size_t i = 0; commands[i].name; i++) {
		if (!strcmp(commands[i].name, argv[1]))
			return cli_usage_error("--markdown goes with 'help config'");
		if (n + 1 < ARRAY_LEN(names))
			names[n++] = commands[i].name;
	}
	const struct opt *keys = config_rows(&nrows);
	if (opt_find(keys, nrows, argv[1]))
		return cli_usage_error("'%.60s' is a key of the configuration: heteroshard help "
				       "config %.60s",
				       argv[1], argv[1]);
	const char *near = opt_nearest_word(names, argv[1]);
	return cli_usage_error("no help for '%.60s'%s%s%s", argv[1],
			       near ? ", did you mean '" : " (see heteroshard --help)",
			       near ? near : "", near ? "'?" : "");
}

int cmd_help(int argc, char **argv)
{
	struct args args = { 0 };
	struct arena a = ARENA_INIT;
	int npos = 0, status;
	if (cli_args(&usage, argc, argv, &args, 0, 2, &npos, &a, &status))
		status = explain(&args, npos, argv);
	arena_release(&a);
	return status;
}
