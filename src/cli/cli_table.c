/* SPDX-License-Identifier: Apache-2.0 */
/* cli_table.c - printed tables: aligned columns, the heading in colour where colours are used. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/mem.h"

#include <ctype.h>
#include <string.h>

enum { MAX_COLUMNS = 16 };

struct cli_table {
	size_t columns, rows;
	struct arena arena;
	const char **cell; /* (rows, columns) */
	size_t cap;
	bool failed;
};

/* Columns on a screen, counted as code points: exact enough for the texts shown here. */
static size_t text_columns(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

struct cli_table *cli_table_new(const char *const *heading, size_t columns)
{
	struct cli_table *t = columns <= MAX_COLUMNS ? mem_zalloc(sizeof *t) : NULL;
	if (!t)
		return NULL;
	t->columns = columns;
	cli_table_add(t, heading);
	return t;
}

void cli_table_add(struct cli_table *t, const char *const *cells)
{
	if (!t || t->failed)
		return;
	if (!mem_grow(&t->cell, &t->cap, (t->rows + 1) * t->columns, sizeof *t->cell)) {
		t->failed = true;
		return;
	}
	for (size_t c = 0; c < t->columns; c++) {
		const char *s = arena_strdup(&t->arena, cells[c] ? cells[c] : "");
		t->cell[t->rows * t->columns + c] = s ? s : "";
	}
	t->rows++;
}

static bool numeric(const struct cli_table *t, size_t column)
{
	for (size_t r = 1; r < t->rows; r++) {
		const char *s = t->cell[r * t->columns + column];
		if (*s && strcmp(s, "-") && !isdigit((unsigned char)s[0]) &&
		    !(s[0] == '-' && isdigit((unsigned char)s[1])))
			return false;
	}
	return t->rows > 1;
}

static void print_rows(const struct cli_table *t, FILE *f)
{
	size_t w[MAX_COLUMNS] = { 0 };
	bool right[MAX_COLUMNS], colour = cli_colour(f);
	for (size_t c = 0; c < t->columns; c++) {
		right[c] = numeric(t, c);
		for (size_t r = 0; r < t->rows; r++) {
			size_t n = text_columns(t->cell[r * t->columns + c]);
			w[c] = n > w[c] ? n : w[c];
		}
	}
	for (size_t r = 0; r < t->rows; r++) {
		fputs(colour && !r ? "\033[1m" : "", f);
		for (size_t c = 0; c < t->columns; c++) {
			const char *s = t->cell[r * t->columns + c];
			int pad = (int)(w[c] - text_columns(s));
			if (right[c])
				fprintf(f, "%*s%s", pad, "", s);
			else
				fprintf(f, "%s%*s", s, c + 1 < t->columns ? pad : 0, "");
			fputs(c + 1 < t->columns ? "  " : "", f);
		}
		fputs(colour && !r ? "\033[0m\n" : "\n", f);
	}
}

void cli_table_print(struct cli_table *t, FILE *f)
{
	if (!t)
		return;
	if (f && !t->failed)
		print_rows(t, f);
	arena_release(&t->arena);
	mem_free(t->cell);
	mem_free(t);
}
