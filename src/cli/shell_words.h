/* SPDX-License-Identifier: Apache-2.0 */
/* shell_words.h - what a package installs beside the program, made from the table of commands and
 * their option rows: the manual page heteroshard(1), completion for bash and for zsh. The pages of
 * the commands come from `COMMAND --help=man` (cli.c). */
#ifndef HS_CLI_SHELL_WORDS_H
#define HS_CLI_SHELL_WORDS_H

#include <stdbool.h>

/* Runs a command, by its place in commands[]. */
typedef int (*shell_run_fn)(int command, int argc, char **argv);

/* `kind`: "man", "bash" or "zsh"; false: another word, nothing was printed. */
bool shell_words_print(const char *kind, shell_run_fn run);

#endif
