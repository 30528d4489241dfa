/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - what the commands that run a job share: Ctrl-C, and being a worker. */
#ifndef HS_CLI_RUN_H
#define HS_CLI_RUN_H

#include "base/opt.h"
#include "job/ranks.h"
#include "job/role.h"
#include "worker/work.h"

#include <signal.h>
#include <stddef.h>

/* From now on SIGINT, SIGTERM and SIGHUP (a terminal that was closed; not under nohup) set the flag
 * that is returned; a second SIGINT or SIGTERM ends the program. */
const volatile sig_atomic_t *cli_stop(void);
/* Whether the first signal says CLI_STOPPING by itself: false where a display is drawn that it
 * would tear, which then says it. */
void cli_stop_says(bool yes);
#define CLI_STOPPING "stopping: the step is finished and saved first (once more to leave at once)"

/* Works for the coordinator of the configuration; the exit status, or an error. */
int cli_work(const struct config *c, const struct role *r, struct err *e);

/* What this process is, where its addresses do not say so. */
struct cli_role {
	const char *role, *worker;
	bool insecure;
};

/* The options of that; `at`: the offset of the struct cli_role in the command's arguments. */
#define CLI_ROLE_ROWS(at)                                                                          \
	{ .key = "role",                                                                           \
	  .kind = OPT_STR,                                                                         \
	  .offset = (at) + offsetof(struct cli_role, role),                                        \
	  .arg = "coordinator|worker",                                                             \
	  .help = "what this machine is, where its addresses do not say so" },                     \
		{ .key = "worker",                                                                 \
		  .kind = OPT_STR,                                                                 \
		  .offset = (at) + offsetof(struct cli_role, worker),                              \
		  .arg = "ID",                                                                     \
		  .help = "be this worker of the configuration" },                                 \
	{                                                                                          \
		.key = "insecure", .kind = OPT_BOOL,                                               \
		.offset = (at) + offsetof(struct cli_role, insecure),                              \
		.help = "links without keys and encryption, on any address: whoever reaches the "  \
			"port can join"                                                            \
	}

/* The coordinator's part of a command, or all of it where there is but this machine. `program`:
 * argv that starts a worker process of the same configuration. `ranks`: NULL unless mpirun or srun
 * started this. Returns the exit status, or an error. */
typedef int (*cli_lead_fn)(void *ctx, const struct config *c, char *const *program,
			   const struct ranks *ranks, struct err *e);
/* A command that is run on every machine of a job, with CONFIG and key=value in pos[npos]: leads,
 * or works for whoever does. The exit status. */
int cli_everywhere(const struct cli_role *r, int npos, char **pos, cli_lead_fn lead, void *ctx);

#endif
