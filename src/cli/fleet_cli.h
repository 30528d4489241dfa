/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_cli.h - what the commands up, down, status and logs share. */
#ifndef HS_CLI_FLEET_CLI_H
#define HS_CLI_FLEET_CLI_H

#include "ops/fleet.h"

/* The words of a command: [CONFIG] [ID]. Without CONFIG that of the last `up`. *c_p: config_free();
 * *id_p NULL: none was given. */
int fleet_cli_config(const char *command, int npos, char **pos, struct config **c_p,
		     const char **id_p, struct err *e);
/* The same with the machines. */
int fleet_cli_open(const char *command, int npos, char **pos, struct config **c_p,
		   struct fleet *f_p, struct err *e);
/* A line for each machine; those that failed go to standard error. Returns how many failed. */
size_t fleet_cli_report(const struct fleet *f);

#endif
