/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what the subcommands share: the table of commands, options with --help, messages, tables
 * of facts.
 *
 * A subcommand is one file cmd_<name>.c with `int cmd_<name>(int argc, char **argv)` (argv[0] is
 * the subcommand's name) and one row of command.def. It returns the exit status: 0, 1 (failed) or 2
 * (wrong use). Results go to cli_out(), everything else to cli_err(). Only this folder prints. */
#ifndef HS_CLI_CLI_H
#define HS_CLI_CLI_H

#include "base/arena.h"
#include "base/version.h"
#include "base/err.h"
#include "base/opt.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct buf;
struct config;
struct progress;

struct command {
	const char *name, *help;
};

/* The streams of the process, or of the program inside of which a command runs (hs_command()). */
FILE *cli_out(void);
FILE *cli_err(void);
FILE *cli_in(void); /* read only where cli_asks() says yes */

struct cli_inside {
	FILE *out, *err;
	const char *input; /* what it reads as its standard input */
	size_t ninput;
	const volatile sig_atomic_t *stop; /* for cli_stop(): no signal is looked at */
	const char *program;               /* what starts workers of this machine */
	struct err failed;                 /* the last error line; code 0: none */
};
/* From now on; NULL: the process is this program's own. */
void cli_go_inside(struct cli_inside *i);
struct cli_inside *cli_is_inside(void); /* NULL: it is not */
bool cli_is_terminal(FILE *f);
bool cli_asks(void); /* somebody can be asked: standard input and error are a terminal */

/* Rows of command.def, ended by a NULL name. commands.c runs them. */
extern const struct command commands[];

/* Everything --help says about a subcommand. */
struct cli_usage {
	const char *synopsis; /* "heteroshard info [--json] PATH" */
	const char *about;    /* what it does: one or more lines */
	const struct opt *rows;
	size_t nrows;
	const char *example; /* lines; NULL: none */
	bool config;         /* takes CONFIG [key=value ...] */
};

/* Parses argv[1..] into `obj`, which the caller has set to zeros, behind the defaults; positionals
 * end up in argv[1..*npos_p]. True: continue. False: end with *status_p (--help was printed, or an
 * error). `a` belongs to the caller, who releases it in both cases. */
bool cli_args(const struct cli_usage *u, int argc, char **argv, void *obj, int least, int most,
	      int *npos_p, struct arena *a, int *status_p);

/* Prints the error line and gives the exit status that belongs to it. */
int cli_fail(const struct err *e);
/* prints, returns 2 */
int cli_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* True where colours are used: a terminal, NO_COLOR not set, TERM not dumb. */
bool cli_colour(FILE *f);
int cli_columns(FILE *f); /* width of the terminal; 0: not a terminal, or TERM is dumb */
int cli_rows(FILE *f);
bool cli_utf8(void);                 /* the locale has it */
struct progress_look cli_look(void); /* of standard error */

/* How much is said: by -q, --quiet, -v, --verbose, before the command or behind it (true: `word` is
 * one of them, and is obeyed), else by the log_level of the configuration. */
bool cli_level_word(const char *word);
void cli_level_config(const struct config *c);
void cli_level_forget(void); /* nothing was said */
bool cli_quiet(void);        /* only warnings and errors */

/* From here on log lines go to standard error (cli_log.c). */
void cli_log_start(void);
/* While a progress display is set, log lines appear above its bar. NULL: no display. */
void cli_set_progress(struct progress *p);
/* The write function for progress_new(): to stderr. */
void cli_write_stderr(void *ctx, const char *text, size_t n);
/* The size of the terminal, for struct progress_look. */
void cli_size(void *ctx, int *columns_p, int *rows_p);

/* "1.5 GiB", "134.5 M" */
const char *cli_bytes(uint64_t bytes, char *s, size_t cap);
const char *cli_count(uint64_t n, char *s, size_t cap);
const char *cli_digits(uint64_t n, char *s, size_t cap); /* "13,631,488" */

/* A printed table: a heading row, then cells; columns as wide as their widest cell. A column
 * whose cells all look like numbers is right-aligned. Cells are copied. */
struct cli_table;
/* NULL when memory is out */
struct cli_table *cli_table_new(const char *const *heading, size_t columns);
void cli_table_add(struct cli_table *t, const char *const *cells);
void cli_table_print(struct cli_table *t, FILE *f); /* and frees it; NULL only frees */

/* Words of files and other machines are printed only by what follows, and by tables: what a
 * terminal would obey becomes '?' (base/text.h). */

/* A table that is made while it is printed, each row twice: `cells` sets as many cells as
 * there are columns (at most 16), valid until the next row; row 0 is the heading. Their texts
 * must be safe. */
typedef void (*cli_cells_fn)(void *ctx, size_t row, const char **cells);
void cli_table_stream(FILE *f, size_t columns, size_t rows, cli_cells_fn cells, void *ctx);

/* "  name        value" lines, the names dimmed on a terminal. */
void cli_fact(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_heading(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As fprintf; newlines pass. */
void cli_line(FILE *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What a model says: as it is into a file or a pipe, made safe on a terminal. false:
 * not written. */
bool cli_text(FILE *f, const char *text, size_t n);
/* JSON as jansson wrote it. Its ASCII has one control character, DEL, which is
 * escaped here. */
void cli_json(FILE *f, const char *text, size_t n);

/* From here on a mapped file that another program makes shorter ends this one with a line that
 * names the file (cli_bus.c). */
void cli_name_lost_files(void);

/* Standard input to its end. */
int cli_read_stdin(struct buf *b, uint64_t limit, struct err *e);

#endif
