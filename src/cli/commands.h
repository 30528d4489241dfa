/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h - the commands by their names: what main.c and hs_command() run. */
#ifndef HS_CLI_COMMANDS_H
#define HS_CLI_COMMANDS_H

/* The words of a command line from the command on. Returns the exit status. What it changes in argv
 * are places of words. */
int commands_run(int argc, char **argv);
/* The command at a place of commands[] (cli.h). */
int commands_run_at(int command, int argc, char **argv);

#endif
