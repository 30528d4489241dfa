/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_up.c - `heteroshard up CONFIG`: workers on their machines, over ssh. */
#include "cli/cli.h"
#include "cli/fleet_cli.h"

#include "base/mem.h"

#include <string.h>

int cmd_up(int argc, char **argv);

struct args {
	bool install;
	char *from;
};

static const struct opt rows[] = {
	{ .key = "install",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, install),
	  .help = "copy the program into the user's home where this version is not there, without "
		  "asking" },
	{ .key = "from",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, from),
	  .arg = "DIR",
	  .help = "where the tarballs of 'make dist' are; else beside the program" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard up [--install] [--from DIR] CONFIG [ID]",
	.about = "Starts the workers of CONFIG that have 'ssh: user@host:port', on their machines, "
		 "with this user's own\n"
		 "ssh: all at once, and one that fails does not hold up the others (min_workers "
		 "says how many are\n"
		 "needed). A worker without 'ip' joins by an invitation of its own. Then: "
		 "'heteroshard train CONFIG'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard up cluster.yaml\n"
		   "  heteroshard up --install cluster.yaml box2",
};

static bool ask(void *ctx, const char *question)
{
	char answer[16] = "";
	(void)ctx;
	cli_line(cli_err(), "%s [y/N] ", question);
	return fgets(answer, sizeof answer, cli_in()) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Whether enough of them run. */
static int judge(const struct fleet *f, size_t failed)
{
	const int64_t least = f->c->min_workers;
	const size_t up = f->n - failed;
	if (!failed)
		return 0;
	if (least && (int64_t)(up + f->elsewhere) >= least) {
		cli_line(cli_err(), "%zu of %zu workers run, %lld are needed (min_workers)\n", up,
			 f->n, (long long)least);
		return 0;
	}
	return 1;
}

static int up(const struct args *o, int npos, char **pos, int *status_p, struct err *e)
{
	struct config *c;
	struct fleet f;
	struct fleet_up how = { .install = o->install, .from = o->from, .minutes = 15 };
	TRY(fleet_cli_open("up", npos, pos, &c, &f, e));
	if (cli_asks())
		how.ask = ask;
	int rc = fleet_look(&f, false, e);
	if (rc >= 0)
		rc = fleet_start(&f, &how, e);
	size_t failed = rc >= 0 ? fleet_cli_report(&f) : f.n;
	if (rc >= 0)
		*status_p = judge(&f, failed);
	if (rc >= 0 && failed < f.n)
		rc = fleet_remember(c->path, e);
	if (rc >= 0 && f.elsewhere)
		fprintf(cli_err(), "%zu more without 'ssh': start 'heteroshard worker' there\n",
			f.elsewhere);
	fleet_close(&f);
	config_free(c);
	return rc;
}

int cmd_up(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 1, 2, &npos, &a, &status)) {
		status = 0;
		if (up(&o, npos, argv + 1, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
