/* SPDX-License-Identifier: Apache-2.0 */
/* csv.h - rows of a table as RFC 4180 has them: fields between commas (or tabs), in quotes where
 * they hold a comma, a quote (twice) or a line feed. The first row names the columns; every value
 * is a string. */
#ifndef HS_DATA_CSV_H
#define HS_DATA_CSV_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct err;

#define CSV_COLUMNS 1000

struct csv {
	char separator;
	struct buf names;  /* the columns as JSON strings, a NUL behind each */
	size_t columns;    /* 0: the first row was not read yet */
	struct buf record; /* the last row as a JSON object */
};

void csv_release(struct csv *c);
/* Looks for a whole row at p: 1 and its length with its line feed, 0 when it goes on behind the n
 * bytes (never with `last`), or an error that begins with what is wrong. `s` keeps how far it came;
 * zeros at first. */
enum csv_state {
	CSV_START, /* of a field */
	CSV_BARE,
	CSV_QUOTED,
	CSV_CLOSED, /* behind a quote in a quoted field: the first of two, or the field's end */
};
struct csv_scan {
	size_t at;
	enum csv_state state;
};
int csv_length(const struct csv *c, struct csv_scan *s, const char *p, size_t n, bool last,
	       size_t *n_p, struct err *e);
/* The row p as the names of the columns, or as a record. */
int csv_row(struct csv *c, const char *p, size_t n, struct err *e);
/* The field at *i of a row that ends at n (its line feed left out); *i is then behind its
 * separator, n + 1 at the end. */
int csv_field(char separator, const char *p, size_t n, size_t *i, struct buf *out, struct err *e);

#endif
