/* SPDX-License-Identifier: Apache-2.0 */
/* live.c - see live.h. The table is made as cells first; then the columns that fit are written. */
#include "report/live.h"

#include "base/buf.h"
#include "report/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { STAGES_MOST = 12, CELL = 96, BAR = 8 };
enum column { STAGE, WORKER, HOST, DEVICE, LAYERS, BUSY, WAIT, MEMORY, LINK, COLUMNS };

static const struct {
	const char *head;
	size_t most; /* characters */
	bool right;
	int keep; /* 0: always; the highest goes first */
} columns[COLUMNS] = {
	[STAGE] = { "stage", 5, true, 0 },     [WORKER] = { "worker", 14, false, 1 },
	[HOST] = { "host", 14, false, 6 },     [DEVICE] = { "device", 26, false, 5 },
	[LAYERS] = { "layers", 16, false, 3 }, [BUSY] = { "busy", 40, false, 0 },
	[WAIT] = { "waiting", 8, true, 2 },    [MEMORY] = { "memory", 20, true, 4 },
	[LINK] = { "to next", 12, true, 3 },
};

struct row {
	char cell[COLUMNS][CELL];
};

static void percent_text(double share, char *s, size_t cap)
{
	if (isfinite(share))
		snprintf(s, cap, "%3.0f %%", 100 * fmin(fmax(share, 0), 9.99));
	else
		snprintf(s, cap, "    -");
}

static void memory_text(const struct live_stage *v, char *s, size_t cap)
{
	double gib = 1.0 / (1 << 30), used = (double)v->memory * gib;
	if (!v->memory)
		snprintf(s, cap, "-");
	else if (v->memory_total)
		snprintf(s, cap, used < 9.995 ? "%.2f / %.1f GiB" : "%.1f / %.1f GiB", used,
			 (double)v->memory_total * gib);
	else
		snprintf(s, cap, "%.2f GiB", used);
}

static void rate_text(double v, char *s, size_t cap)
{
	if (!isfinite(v))
		s[0] = 0;
	else if (v >= 9.995e9)
		snprintf(s, cap, "%.1f GB/s", v / 1e9);
	else if (v < 0.95e6)
		snprintf(s, cap, "%.*f kB/s", v < 9.95e3 ? 1 : 0, v / 1e3);
	else
		snprintf(s, cap, "%.*f MB/s", v < 9.95e6 ? 1 : 0, v / 1e6);
}

/* The share as a bar of BAR columns and a number. */
static void busy_text(double share, bool utf8, char *s, size_t cap)
{
	char number[16];
	int full = isfinite(share) ? (int)(fmin(fmax(share, 0), 1) * BAR + 0.5) : 0;
	size_t n = 0;
	for (int i = 0; i < BAR; i++)
		n += (size_t)snprintf(s + n, cap - n, "%s",
				      i < full ? (utf8 ? "█" : "#")
				      : utf8   ? "░"
					       : ".");
	percent_text(share, number, sizeof number);
	snprintf(s + n, cap - n, " %s", number);
}

static void fill(const struct live_stage *v, int stage, bool utf8, struct row *r)
{
	if (v->stage)
		snprintf(r->cell[STAGE], CELL, "%s", v->stage);
	else
		snprintf(r->cell[STAGE], CELL, "%d", stage);
	text_clean(r->cell[WORKER], CELL, v->worker, columns[WORKER].most);
	text_clean(r->cell[HOST], CELL, v->host, columns[HOST].most);
	text_clean(r->cell[DEVICE], CELL, v->device, columns[DEVICE].most);
	text_clean(r->cell[LAYERS], CELL, v->layers, columns[LAYERS].most);
	busy_text(v->busy, utf8, r->cell[BUSY], CELL);
	percent_text(v->wait, r->cell[WAIT], CELL);
	memory_text(v, r->cell[MEMORY], CELL);
	rate_text(v->rate, r->cell[LINK], CELL);
}

static double known(double share) { return isfinite(share) ? share : 0; }

/* Which stages are shown: all, or the first one and the busiest, in their order. */
static int choose_stages(const struct live_stage *v, int n, int room, int shown[STAGES_MOST])
{
	int count = 0;
	while (count < n && count < room) {
		int best = -1;
		for (int i = 0; i < n; i++) {
			int k = 0;
			while (k < count && shown[k] != i)
				k++;
			if (k == count &&
			    (best < 0 || (n > room && known(v[i].busy) > known(v[best].busy))))
				best = count ? i : 0;
		}
		int at = count++;
		for (; at > 0 && shown[at - 1] > best; at--)
			shown[at] = shown[at - 1];
		shown[at] = best;
	}
	return count;
}

/* The columns' widths; 0: not shown. An empty column is not shown either. */
static void measure_columns(const struct row *r, int n, int room, int width[COLUMNS])
{
	for (int c = 0; c < COLUMNS; c++) {
		bool empty = true;
		width[c] = text_width(columns[c].head);
		for (int i = 0; i < n; i++) {
			int w = text_width(r[i].cell[c]);
			width[c] = w > width[c] ? w : width[c];
			empty &= !r[i].cell[c][0] || !strcmp(r[i].cell[c], "-") ||
				 !strcmp(r[i].cell[c], "    -");
		}
		width[c] = empty ? 0 : width[c];
	}
	for (;;) {
		int all = 0, worst = -1;
		for (int c = 0; c < COLUMNS; c++) {
			all += width[c] ? width[c] + 2 : 0;
			if (width[c] && columns[c].keep &&
			    (worst < 0 || columns[c].keep > columns[worst].keep))
				worst = c;
		}
		if (all <= room || worst < 0)
			return;
		width[worst] = 0;
	}
}

static const char *colour_of_cell(const struct live_stage *v, enum column c)
{
	if (c == BUSY)
		return "\033[36m";
	if (c == WAIT && known(v->wait) >= 0.3)
		return "\033[33m";
	if (c == MEMORY && v->memory_total && (double)v->memory >= 0.95 * (double)v->memory_total)
		return "\033[31m";
	return c == HOST || c == DEVICE ? "\033[2m" : NULL;
}

/* One line, cut at `room` columns where even the shortest form does not fit. */
static void write_row(struct buf *out, const char *const cell[COLUMNS], const int width[COLUMNS],
		      const struct live_stage *v, int room, bool colour)
{
	for (int c = 0, at = 0, pad = 0; c < COLUMNS; c++) {
		const char *ink = !colour ? NULL
				  : v     ? colour_of_cell(v, (enum column)c)
					  : "\033[2m";
		int w = text_width(cell[c]);
		if (!width[c])
			continue;
		pad += columns[c].right ? width[c] - w : 0;
		if (!w) { /* nothing, not even blanks at the end of a line */
			pad += (columns[c].right ? 0 : width[c]) + 2;
			continue;
		}
		if (at + pad + w > room)
			break;
		at += pad + w;
		buf_addf(out, "%*s%s%s%s", pad, "", ink ? ink : "", cell[c], ink ? "\033[0m" : "");
		pad = (columns[c].right ? 0 : width[c] - w) + 2;
	}
	buf_addc(out, '\n');
}

void live_table(const struct live_stage *v, int n, const struct live_look *look, struct buf *out)
{
	struct row r[STAGES_MOST];
	const char *cell[COLUMNS];
	int shown[STAGES_MOST], width[COLUMNS], room = look->columns - 1, most = look->rows - 1;
	most = most > STAGES_MOST ? STAGES_MOST : most;
	if (n > most)
		most--; /* for the last line */
	most = most < 1 ? 1 : most;
	int count = choose_stages(v, n, most, shown);
	for (int i = 0; i < count; i++)
		fill(&v[shown[i]], shown[i], look->utf8, &r[i]);
	measure_columns(r, count, room + 2, width);
	for (int c = 0; c < COLUMNS; c++)
		cell[c] = columns[c].head;
	write_row(out, cell, width, NULL, room, look->colour);
	for (int i = 0; i < count; i++) {
		for (int c = 0; c < COLUMNS; c++)
			cell[c] = r[i].cell[c];
		write_row(out, cell, width, &v[shown[i]], room, look->colour);
	}
	if (count < n)
		buf_addf(out, "%s and %d more\n", look->utf8 ? "…" : "...", n - count);
}

void live_line(const struct live_stage *v, int n, struct buf *out)
{
	for (int i = 0; i < n; i++) {
		char name[CELL], busy[16], wait[16], rate[CELL], at[16];
		snprintf(at, sizeof at, "%d", i);
		text_clean(name, sizeof name, v[i].worker, columns[WORKER].most);
		snprintf(busy, sizeof busy, "%.0f", 100 * known(v[i].busy));
		snprintf(wait, sizeof wait, "%.0f", 100 * known(v[i].wait));
		rate_text(v[i].rate, rate, sizeof rate);
		buf_addf(out, "%s%s %s busy %s %% waiting %s %%%s%s", i ? "; " : "",
			 v[i].stage ? v[i].stage : at, name, busy, wait,
			 rate[0] ? ", to next " : "", rate);
		if (v[i].experts > 0)
			buf_addf(out, ", experts there %.0f %%", 100 * v[i].experts);
	}
}
