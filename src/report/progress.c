/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - see progress.h. Table and bar are the last lines of the terminal, the cursor is at
 * their beginning; any other line first clears them, and draws them again below itself. */
#include "report/progress.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "report/text.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct progress {
	progress_write_fn write;
	void *ctx;
	struct progress_look look;
	pthread_mutex_t lock;
	struct progress_step last;
	bool have; /* last is filled */
	char what[64];
	double share;
	bool bar;                /* there is one */
	progress_table_fn table; /* above it; NULL: none */
	void *table_ctx;
	struct buf block; /* table and bar */
	struct buf out;   /* text to be written; empty but while the lock is held */
	bool on_screen;   /* table and bar are */
	int64_t drawn;    /* time of the last drawing */
	bool late;        /* something has changed since */
	bool resized;     /* the size of the terminal has */
};

int progress_new(progress_write_fn write, void *ctx, struct progress_look look,
		 struct progress **p_p, struct err *e)
{
	struct progress *p = mem_zalloc(sizeof *p);
	if (!p)
		return err_nomem(e, sizeof *p, "the progress display");
	p->write = write;
	p->ctx = ctx;
	p->look = look;
	buf_init(&p->block);
	buf_init(&p->out);
	pthread_mutex_init(&p->lock, NULL);
	*p_p = p;
	return 0;
}

void progress_duration(double seconds, char *s, size_t cap)
{
	if (!(seconds >= 0) || seconds > 1e9) {
		snprintf(s, cap, "?");
		return;
	}
	long long t = (long long)(seconds + 0.5);
	if (t < 3600)
		snprintf(s, cap, "%lld:%02lld", t / 60, t % 60);
	else if (t < 2 * 86400)
		snprintf(s, cap, "%lld:%02lld:%02lld", t / 3600, t / 60 % 60, t % 60);
	else
		snprintf(s, cap, "%lld days %lld h", t / 86400, t / 3600 % 24);
}

/* 812, 9.6, 12.3k: three digits are enough for a rate. */
static void put_rate(struct buf *t, double v)
{
	if (!isfinite(v))
		buf_addf(t, "%6s", "-");
	else if (v < 9.95)
		buf_addf(t, "%6.2f", v);
	else if (v < 99.5)
		buf_addf(t, "%6.1f", v);
	else if (v < 99999.5)
		buf_addf(t, "%6.0f", v);
	else
		buf_addf(t, "%5.0fk", v / 1000);
}

/* ---- table and bar ---- */

static void clear(struct progress *p)
{
	if (p->on_screen)
		buf_adds(&p->out, "\r\033[J");
	p->on_screen = false;
}

/* "████████▌         " in `width` columns, an eighth of a column fine. */
static void put_blocks(struct buf *t, double share, int width, bool utf8)
{
	static const char *const part[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	int eighths = (int)(fmin(fmax(share, 0), 1) * width * 8 + 0.5), full = eighths / 8,
	    rest = utf8 ? eighths % 8 : 0;
	for (int i = 0; i < full; i++)
		buf_adds(t, utf8 ? "█" : "#");
	buf_addf(t, "%s%*s", part[rest], width - full - (rest != 0), "");
}

/* The figures right of the bar, as many as fit. */
static void put_figures(const struct progress *p, int room, struct buf *t)
{
	const struct progress_step *s = &p->last;
	char piece[3][48] = { "", "", "" }, d[32];
	if (!p->have)
		return;
	if (isfinite(s->eta)) {
		progress_duration(s->eta, d, sizeof d);
		snprintf(piece[0], sizeof piece[0], "  %s left", d);
	}
	if (isfinite(s->loss))
		snprintf(piece[1], sizeof piece[1], "  loss %.4f", s->loss);
	if (isfinite(s->tokens_per_second))
		snprintf(piece[2], sizeof piece[2], "  %.*f tokens/s",
			 s->tokens_per_second < 99.5 ? 1 : 0, s->tokens_per_second);
	for (int i = 0; i < 3 && (int)strlen(piece[i]) <= room; i++) {
		buf_adds(t, piece[i]);
		room -= (int)strlen(piece[i]);
	}
}

static void put_bar(const struct progress *p, struct buf *t)
{
	enum { MOST = 30, LEAST = 8, PERCENT = 6 };
	int room = p->look.columns - 1, left = text_width(p->what),
	    width = room - left - 1 - PERCENT - 16;
	width = width > MOST ? MOST : width;
	if (width < LEAST) {
		buf_addf(t, "%.*s", room, p->what);
		return;
	}
	buf_addf(t, "%s %s", p->what, p->look.colour ? "\033[36m" : "");
	put_blocks(t, p->share, width, p->look.utf8);
	buf_addf(t, "%s %3.0f%%", p->look.colour ? "\033[0m" : "",
		 100 * fmin(fmax(p->share, 0), 1));
	put_figures(p, room - left - 1 - width - PERCENT, t);
}

/* Asks for the size of the terminal. */
static void look_at_size(struct progress *p)
{
	int columns = p->look.columns, rows = p->look.rows;
	if (!columns || !p->look.size)
		return;
	p->look.size(p->ctx, &columns, &rows);
	if (columns < 1 || (columns == p->look.columns && rows == p->look.rows))
		return;
	p->look.columns = columns;
	p->look.rows = rows;
	p->resized = true;
}

static void put_block(struct progress *p)
{
	int lines = 0;
	buf_reset(&p->block);
	if (p->table)
		p->table(p->table_ctx, p->look.columns, p->look.rows, &p->block);
	put_bar(p, &p->block);
	for (size_t i = 0; i < p->block.n; i++)
		lines += p->block.p[i] == '\n';
	buf_adds(&p->out, "\033[?7l"); /* no wrapping */
	buf_add(&p->out, p->block.p, p->block.n);
	buf_adds(&p->out, "\r");
	if (lines)
		buf_addf(&p->out, "\033[%dA", lines);
	buf_adds(&p->out, "\033[?7h");
	p->on_screen = true;
}

static void draw(struct progress *p)
{
	look_at_size(p);
	clear(p);
	if (p->bar)
		put_block(p);
	p->drawn = clock_now();
	p->late = p->resized = false;
}

static void flush(struct progress *p)
{
	if (p->out.n)
		p->write(p->ctx, p->out.p, p->out.n);
	buf_reset(&p->out);
}

/* Redraws now, or when the interval has passed. */
static void redraw_soon(struct progress *p)
{
	p->late = true;
	if (clock_now() - p->drawn >= p->look.interval)
		draw(p);
}

static void set_bar(struct progress *p, const char *what, double share)
{
	snprintf(p->what, sizeof p->what, "%.46s", what);
	p->share = share;
	p->bar = true;
}

/* ---- lines ---- */

static void step_line(const struct progress *p, const struct progress_step *s, struct buf *t)
{
	const char *dim = p->look.colour ? "\033[2m" : "", *bold = p->look.colour ? "\033[1m" : "",
		   *off = p->look.colour ? "\033[0m" : "";
	int digits = 1;
	for (int64_t n = s->steps; n >= 10; n /= 10)
		digits++;
	if (s->steps)
		buf_addf(t, "%sstep%s %*lld/%lld", dim, off, digits, (long long)s->step,
			 (long long)s->steps);
	else
		buf_addf(t, "%sstep%s %lld", dim, off, (long long)s->step);
	if (s->skipped && isfinite(s->loss) && s->loss_scale > 1)
		buf_addf(t,
			 "  %sskipped: the gradient leaves float16's range at loss scale %g, which "
			 "is halved%s",
			 p->look.colour ? "\033[33m" : "", s->loss_scale, off);
	else if (s->skipped)
		buf_addf(t, "  %sskipped: loss or gradient is not finite%s",
			 p->look.colour ? "\033[33m" : "", off);
	else
		buf_addf(t, "  %sloss%s %s%7.4f%s", dim, off, bold, s->loss, off);
	buf_addf(t, "  %slr%s %.2e", dim, off, s->learning_rate);
	if (s->rewards && !isnan(s->margin))
		buf_addf(t, "  %smargin%s %.3f", dim, off, s->margin);
	if (s->rewards)
		buf_addf(t, "  %sright%s %.0f %%", dim, off, 100 * s->right);
	if (s->experts > 0)
		buf_addf(t, "  %sexperts there%s %.0f %%", dim, off, 100 * s->experts);
	if (isfinite(s->grad_norm))
		buf_addf(t, "  %snorm%s %7.3f", dim, off, s->grad_norm);
	buf_addf(t, "  ");
	put_rate(t, s->tokens_per_second);
	buf_addf(t, "%s tokens/s%s", dim, off);
	if (isfinite(s->eta)) {
		char d[32];
		progress_duration(s->eta, d, sizeof d);
		buf_addf(t, "  %sETA%s %s", dim, off, d);
	}
	if (isfinite(s->val_loss))
		buf_addf(t, "  %svalidation loss%s %s%.4f%s", dim, off, bold, s->val_loss, off);
	buf_addf(t, "\n");
}

void progress_step(struct progress *p, const struct progress_step *s, bool line)
{
	pthread_mutex_lock(&p->lock);
	p->last = *s;
	p->have = true;
	if (line) {
		clear(p);
		step_line(p, s, &p->out);
	}
	if (p->look.columns && s->steps) {
		char what[48];
		snprintf(what, sizeof what, "%lld/%lld", (long long)s->step, (long long)s->steps);
		set_bar(p, what, (double)s->step / (double)s->steps);
		p->bar = s->step < s->steps;
		if (line || !p->bar)
			draw(p);
		else
			redraw_soon(p);
	}
	flush(p);
	pthread_mutex_unlock(&p->lock);
}

void progress_line(struct progress *p, const char *text)
{
	pthread_mutex_lock(&p->lock);
	clear(p);
	buf_addf(&p->out, "%s\n", text);
	draw(p);
	flush(p);
	pthread_mutex_unlock(&p->lock);
}

void progress_part(struct progress *p, const char *what, int64_t done, int64_t all)
{
	pthread_mutex_lock(&p->lock);
	if (p->look.columns && all > 0) {
		set_bar(p, what, (double)done / (double)all);
		redraw_soon(p);
		flush(p);
	}
	pthread_mutex_unlock(&p->lock);
}

void progress_table(struct progress *p, progress_table_fn fn, void *ctx)
{
	pthread_mutex_lock(&p->lock);
	p->table = fn;
	p->table_ctx = ctx;
	p->late = true;
	pthread_mutex_unlock(&p->lock);
}

void progress_refresh(struct progress *p)
{
	pthread_mutex_lock(&p->lock);
	look_at_size(p);
	bool due = p->late && clock_now() - p->drawn >= p->look.interval;
	if (p->bar && (p->resized || due))
		draw(p);
	flush(p);
	pthread_mutex_unlock(&p->lock);
}

void progress_free(struct progress *p)
{
	if (!p)
		return;
	clear(p);
	flush(p);
	pthread_mutex_destroy(&p->lock);
	buf_release(&p->block);
	buf_release(&p->out);
	mem_free(p);
}
