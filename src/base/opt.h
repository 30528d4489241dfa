/* SPDX-License-Identifier: Apache-2.0 */
/* opt.h - options as rows: parsing, checking, --help and the reference in docs/ all come from one
 * table.
 *
 * A row describes one field of a caller's struct. The same rows read a configuration file (YAML),
 * `key=value` on the command line and `--key value` flags ('-' and '_' are the same in a flag).
 * Values are checked against the row's kind and range; an unknown key is an error that names the
 * nearest known one. */
#ifndef HS_BASE_OPT_H
#define HS_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct buf;
struct arena;
struct yaml_node;

enum opt_kind {
	OPT_BOOL,  /* bool */
	OPT_INT,   /* int64_t */
	OPT_FLOAT, /* double; NaN and infinities are refused */
	OPT_STR,   /* const char * (in the arena); NULL: not given */
	OPT_ENUM,  /* int: index into the '|'-separated words of `choices` */
	OPT_NAME,  /* const char *: the name of a row of a registry, one of `names` */
	/* struct opt_list: list of strings; one string counts as a list of one, commas separate on
	 * the command line */
	OPT_LIST,
	/* read by the caller from the YAML node; only named here for help and nearest-key */
	OPT_CUSTOM,
};

#define OPT_MAX 1e15

struct opt_list {
	const char **item;
	size_t n;
};

/* The rows of a registry as values of an option: a new row is at once allowed, listed in --help and
 * named in errors. */
struct opt_names {
	/* MUST: the i-th name, NULL past the end; *help_p: one line about it */
	const char *(*at)(size_t i, const char **help_p);
	/* MAY: other names of the i-th one, and the keys that only some rows read; NULL-terminated
	 * lists, or NULL */
	const char *const *(*aliases)(size_t i);
	const char *const *(*keys)(size_t i);
};

struct opt {
	const char *key; /* as in the configuration file */
	enum opt_kind kind;
	size_t offset;       /* of the field */
	const char *def;     /* default as text; NULL: none (zero, false, NULL) */
	const char *choices; /* OPT_ENUM: "auto|float32" */
	/* OPT_NAME; OPT_STR: named in help, not demanded */
	const struct opt_names *names;
	/* OPT_INT, OPT_FLOAT: allowed range, both ends included; lo == hi: any; hi of OPT_MAX: no
	 * upper end */
	double lo, hi;
	bool lo_open; /* OPT_FLOAT: lo itself is excluded */
	/* word for the value in --help: "N". "FILE", "DIR" and "PATH" are paths: '~' is expanded */
	const char *arg;
	const char *help;    /* one line, lower case, no full stop */
	const char *section; /* heading in help and reference; NULL: the same as the row above */
};

/* Sets every field to its default. */
int opt_defaults(const struct opt *rows, size_t n, void *obj, struct arena *a, struct err *e);
/* Sets one field from text. `where` heads the message ("train.yaml:12", "command line"). */
int opt_set(const struct opt *rows, size_t n, void *obj, const char *key, const char *value,
	    const char *where, struct arena *a, struct err *e);
/* Sets fields from a mapping; calls `custom` for OPT_CUSTOM rows. `seen` (n bools) may be NULL.
 * `file` heads the messages. */
typedef int (*opt_custom_fn)(void *obj, const struct opt *row, const struct yaml_node *node,
			     const char *file, struct arena *a, struct err *e);
int opt_set_yaml(const struct opt *rows, size_t n, void *obj, const struct yaml_node *map,
		 const char *file, opt_custom_fn custom, bool *seen, struct arena *a,
		 struct err *e);
/* `path` with "~" or "~/" at its beginning as $HOME; else `path` itself. NULL: memory is out. */
const char *opt_path(const char *path, struct arena *a);
/* The row with this key ('-' equals '_'), or NULL. */
const struct opt *opt_find(const struct opt *rows, size_t n, const char *key);
/* The known key nearest to a misspelt one (Damerau-Levenshtein distance at most 3 and under half
 * its length; else one that contains the key or is contained in it), or NULL. */
const char *opt_nearest(const struct opt *rows, size_t n, const char *key);
/* How many letters to put in, take out, change or swap from one word to the other, without regard
 * to case; UINT_MAX where one is too long. */
unsigned opt_distance(const char *a, const char *b);
/* The same for any words: a NULL-terminated list. */
const char *opt_nearest_word(const char *const *words, const char *word);
/* The names with `between` between them, cut at cap. */
const char *opt_names_text(const struct opt_names *n, const char *between, char *s, size_t cap);
/* --help text: one entry a row, wrapped at 100 columns; keys as they stand in a file, or
 * as flags. */
void opt_help(const struct opt *rows, size_t n, bool as_flags, struct buf *out);
/* The options of a manual page (roff), and their flags with a blank before each. */
void opt_man(const struct opt *rows, size_t n, struct buf *out);
void opt_flags(const struct opt *rows, size_t n, struct buf *out);
/* A text in a manual page: what roff would obey stands as it is. */
void opt_roff(struct buf *out, const char *text);
/* The reference as a Markdown table per section, for docs/. */
void opt_markdown(const struct opt *rows, size_t n, struct buf *out);

/* argv parsing for a subcommand: `--key value`, `--key=value`, `--flag`, `--no-flag`, `--` ends
 * flags. Everything else is positional and kept in order (argv is permuted: positionals first,
 * *npos_p of them). */
int opt_argv(const struct opt *rows, size_t n, void *obj, int argc, char **argv, int *npos_p,
	     struct arena *a, struct err *e);

#endif
