/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_down.c - `heteroshard down`: ends the workers that `up` started. */
#include "cli/cli.h"
#include "cli/fleet_cli.h"

#include "base/mem.h"

int cmd_down(int argc, char **argv);

struct args {
	bool now;
	double wait;
};

static const struct opt rows[] = {
	{ .key = "now",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, now),
	  .help = "end them at once; a job that runs is lost up to its last checkpoint" },
	{ .key = "wait",
	  .kind = OPT_FLOAT,
	  .offset = offsetof(struct args, wait),
	  .def = "120",
	  .lo = 0,
	  .hi = 86400,
	  .arg = "SECONDS",
	  .help = "how long the step and the saving of a job that runs may take" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard down [--now] [--wait SECONDS] [CONFIG] [ID]",
	.about = "Ends the workers that 'heteroshard up' started, or one of them. A job that runs "
		 "finishes its step, saves\n"
		 "and ends. Without CONFIG: that of the last 'up'.",
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard down\n"
		   "  heteroshard down cluster.yaml box2",
};

static int down(const struct args *o, int npos, char **pos, int *status_p, struct err *e)
{
	struct config *c;
	struct fleet f;
	TRY(fleet_cli_open("down", npos, pos, &c, &f, e));
	int rc = fleet_stop(&f, o->wait, o->now, e);
	if (rc >= 0)
		*status_p = fleet_cli_report(&f) > 0;
	fleet_close(&f);
	config_free(c);
	return rc;
}

int cmd_down(int argc, char **argv)
{
	struct args o = { 0 };
	struct arena a = ARENA_INIT;
	struct err e = { 0 };
	int npos, status;
	if (cli_args(&usage, argc, argv, &o, 0, 2, &npos, &a, &status)) {
		status = 0;
		if (down(&o, npos, argv + 1, &status, &e) < 0)
			status = cli_fail(&e);
	}
	arena_release(&a);
	return status;
}
