/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_worker.c - `heteroshard worker CONFIG`: one worker of a job over several machines; also what
 * `train` is on such a machine. */
#include "cli/cli.h"
#include "cli/run.h"
#include "job/network.h"

#include "base/mem.h"
#include "base/os.h"

#include <signal.h>

int cmd_worker(int argc, char **argv);

struct args {
	char *worker;
	bool insecure;
};

static const struct opt rows[] = {
	{ .key = "worker",
	  .kind = OPT_STR,
	  .offset = offsetof(struct args, worker),
	  .arg = "ID",
	  .help = "which of the configuration's workers" },
	{ .key = "insecure",
	  .kind = OPT_BOOL,
	  .offset = offsetof(struct args, insecure),
	  .help = "links without keys and encryption, on any address: anyone who reaches the port "
		  "can "
		  "join" },
};

static const struct cli_usage usage = {
	.synopsis = "heteroshard worker [--worker ID] CONFIG [key=value ...]",
	.about = "Works for the coordinator that CONFIG names: the same as 'train --role worker'. "
		 "Of several\n"
		 "workers with this machine's address it is the first whose port is free, unless "
		 "--worker says.",
	.config = true,
	.rows = rows,
	.nrows = ARRAY_LEN(rows),
	.example = "  heteroshard worker cluster.yaml\n"
		   "  heteroshard worker --worker b cluster.yaml",
};

int cmd_worker(int argc, char **argv)
{
	struct arena a = ARENA_INIT;
	struct args o = { 0 };
	struct err e = { 0 };
	struct role r;
	struct config *c = NULL;
	int npos, status;
	if (!cli_args(&usage, argc, argv, &o, 1, -1, &npos, &a, &status)) {
		arena_release(&a);
		return status;
	}
	int rc = cli_config("worker", CONFIG_PART, npos, argv + 1, &c, &e);
	if (rc >= 0) {
		cli_level_config(c);
		c->insecure |= o.insecure;
		rc = role_find(c, "worker", o.worker, &r, &e);
	}
	if (rc >= 0)
		rc = network_check(c, &e);
	if (rc >= 0)
		rc = cli_work(c, &r, &e);
	config_free(c);
	arena_release(&a);
	if (e.code == ERR_CANCELLED && os_die_with_parent())
		return 1; /* the coordinator says why, on the same terminal */
	return rc < 0 ? cli_fail(&e) : rc;
}
