/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - code shared by the commands that run a job: Ctrl-C, and working as a worker. */
#ifndef HS_CLI_RUN_H
#define HS_CLI_RUN_H

#include "base/opt.h"
#include "ops/ranks.h"
#include "job/role.h"
#include "worker/work.h"

#include <signal.h>
#include <stddef.h>

/* From now on SIGINT, SIGTERM and SIGHUP (a terminal that was closed; not under nohup) set the flag
 * that is returned; a second SIGINT or SIGTERM ends the program. Inside of another program the flag
 * is that one's, and signals are left alone. */
const volatile sig_atomic_t *cli_stop(void);
/* Whether the signal handler prints cli_stop_text(): false where a display is drawn, which then
 * shows it. */
void cli_stop_says(bool yes);
/* What a stop means now: while steps are trained, one is finished and saved first. */
void cli_stop_trains(bool yes);
const char *cli_stop_text(void);

/* The configuration of a command: pos[0], then key=value in pos[1..npos). What is no configuration
 * (a model, data, key=value in its place) is ERR_USAGE with what to write. */
int cli_config(const char *command, enum config_need need, int npos, char **pos,
	       struct config **c_p, struct err *e);
/* Works for the coordinator of the configuration; the exit status, or an error. */
int cli_work(const struct config *c, const struct role *r, struct err *e);

/* The role of this process, where it does not follow from its addresses. */
struct cli_role {
	const char *command; /* of the program: "train" */
	const char *role, *worker;
	bool insecure;
	/* a worker serves job after job, until the coordinator calls no more */
	bool jobs;
};

/* The options of that; `at`: the offset of the struct cli_role in the command's arguments. */
#define CLI_ROLE_ROWS(at)                                                                          \
	{ .key = "role",                                                                           \
	  .kind = OPT_STR,                                                                         \
	  .offset = (at) + offsetof(struct cli_role, role),                                        \
	  .arg = "coordinator|worker",                                                             \
	  .help = "the role of this machine, where it does not follow from its addresses" },       \
		{ .key = "worker",                                                                 \
		  .kind = OPT_STR,                                                                 \
		  .offset = (at) + offsetof(struct cli_role, worker),                              \
		  .arg = "ID",                                                                     \
		  .help = "be this worker of the configuration" },                                 \
	{                                                                                          \
		.key = "insecure", .kind = OPT_BOOL,                                               \
		.offset = (at) + offsetof(struct cli_role, insecure),                              \
		.help = "links without keys and encryption, on any address: anyone who reaches "   \
			"the "                                                                     \
			"port can join"                                                            \
	}

/* The coordinator's part of a command, or all of it where this is the only machine. `program`:
 * argv that starts a worker process of the same configuration. `ranks`: NULL unless mpirun or srun
 * started this. Returns the exit status, or an error. */
typedef int (*cli_lead_fn)(void *ctx, const struct config *c, char *const *program,
			   const struct ranks *ranks, struct err *e);
/* A command that is run on every machine of a job, with CONFIG and key=value in pos[npos]:
 * coordinates, or works for the coordinator. The coordinator's configuration must have what `need`
 * says; with CONFIG_PART `lead` checks it and the network itself. Returns the exit status. */
int cli_everywhere(const struct cli_role *r, enum config_need need, int npos, char **pos,
		   cli_lead_fn lead, void *ctx);

#endif
