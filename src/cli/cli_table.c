/* SPDX-License-Identifier: Apache-2.0 */
/* cli_table.c - printed tables: aligned columns, the heading in colour where colours are used. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"

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
		char *s = arena_strdup(&t->arena, cells[c] ? cells[c] : "");
		if (s)
			text_safe_str(s, TEXT_LINE);
		t->cell[t->rows * t->columns + c] = s ? s : "";
	}
	t->rows++;
}

static bool looks_numeric(const char *s)
{
	return !*s || !strcmp(s, "-") || isdigit((unsigned char)s[0]) ||
	       (s[0] == '-' && isdigit((unsigned char)s[1]));
}

void cli_table_stream(FILE *f, size_t columns, size_t rows, cli_cells_fn cells, void *ctx)
{
	size_t w[MAX_COLUMNS] = { 0 };
	const char *s[MAX_COLUMNS];
	bool right[MAX_COLUMNS], colour = cli_colour(f);
	for (size_t c = 0; c < columns; c++)
		right[c] = rows > 1;
	for (size_t r = 0; r < rows; r++) {
		cells(ctx, r, s);
		for (size_t c = 0; c < columns; c++) {
			size_t n = text_columns(s[c]);
			w[c] = n > w[c] ? n : w[c];
			right[c] = right[c] && (!r || looks_numeric(s[c]));
		}
	}
	for (size_t r = 0; r < rows; r++) {
		cells(ctx, r, s);
		fputs(colour && !r ? "\033[1m" : "", f);
		for (size_t c = 0; c < columns; c++) {
			int pad = (int)(w[c] - text_columns(s[c]));
			if (right[c])
				fprintf(f, "%*s%s", pad, "", s[c]);
			else
				fprintf(f, "%s%*s", s[c], c + 1 < columns ? pad : 0, "");
			fputs(c + 1 < columns ? "  " : "", f);
		}
		fputs(colour && !r ? "\033[0m\n" : "\n", f);
	}
}

static void kept_cells(void *ctx, size_t row, const char **cells)
{
	const struct cli_table *t = ctx;
	memcpy(cells, t->cell + row * t->columns, t->columns * sizeof *cells);
}

void cli_table_print(struct cli_table *t, FILE *f)
{
	if (!t)
		return;
	if (f && !t->failed)
		cli_table_stream(f, t->columns, t->rows, kept_cells, t);
	arena_release(&t->arena);
	mem_free(t->cell);
	mem_free(t);
}
