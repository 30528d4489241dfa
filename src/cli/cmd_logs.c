/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_logs.c - `heteroshard logs`: what workers that `up` started write. */
#include "cli/cli.h"
#include "cli/fleet_cli.h"

#include "base/mem.h"

#include <string.h>

int cmd_logs(int argc, char **argv);

struct args {
	bool follow;
	int64_t lines;
};

static const struct opt rows[] = {
	{ .key = "follow",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, follow),
	  .help = "-f: go on with what comes, until Ctrl-C" },
	{ .key = "lines",
	  .kind = OPT_INT,
	  .offset = offsetof(struct args, lines),
	  .def = "100",
	  .lo = 0,
	  .hi = 1000000,
	  .help = "the last so many lines of each" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard logs [-f] [--lines N] [CONFIG] [ID]",
	.about = "Shows what the workers that 'heteroshard up' started have written, each line "
		 "with the id of its worker.\n"
		 "Without CONFIG: that of the last 'up'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard logs -f\n"
		   "  heteroshard logs cluster.yaml box2 --lines 1000",
};

static void print(void *ctx, const char *id, const char *line)
{
	(void)ctx;
	cli_line(cli_out(), "%s: %s\n", id, line);
	fflush(cli_out());
}

static void print_failure(void *ctx, const char *id, const char *why)
{
	cli_line(cli_err(), "error: %s: %s\n", id, why);
	*(int *)ctx = 1;
}

static int logs(const struct args *o, int npos, char **pos, int *status_p, struct err *e)
{
	struct config *c;
	struct fleet f;
	TRY(fleet_cli_open("logs", npos, pos, &c, &f, e));
	int rc = fleet_logs(&f, (int)o->lines, o->follow, print, print_failure, status_p, e);
	fleet_close(&f);
	config_free(c);
	return rc;
}

int cmd_logs(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	char follow[] = "--follow";
	int npos, status;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "-f"))
			argv[i] = follow;
	if (cli_args(&usage, argc, argv, &o, 0, 2, &npos, &a, &status)) {
		status = 0;
		if (logs(&o, npos, argv + 1, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
