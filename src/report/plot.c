/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - see plot.h. Two panels over one axis of steps: the losses, and below them the learning
 * rate. Each curve has its last value at its end. With many steps the single losses become a pale
 * line below a smoothed one. */
#include "report/plot.h"
#include "report/plot_axis.h"

#include "base/err.h"
#include "base/mem.h"
#include "report/canvas.h"

#include <cairo/cairo.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 1600, HEIGHT = 900 };

struct colour {
	double r, g, b;
};

static const struct colour ink = { 0.10, 0.12, 0.16 }, grey = { 0.42, 0.45, 0.50 },
			   pale = { 0.90, 0.91, 0.93 }, blue = { 0.15, 0.39, 0.92 },
			   orange = { 0.92, 0.35, 0.05 }, green = { 0.06, 0.60, 0.46 };

static const char font[] = "DejaVu Sans";

struct panel {
	double x, y, w, h;             /* on the page */
	double x_lo, x_hi, y_lo, y_hi; /* what it shows */
};

static double px(const struct panel *p, double v)
{
	return p->x + (v - p->x_lo) / (p->x_hi - p->x_lo) * p->w;
}

static double py(const struct panel *p, double v)
{
	return p->y + p->h - (v - p->y_lo) / (p->y_hi - p->y_lo) * p->h;
}

static void set(cairo_t *c, struct colour k, double alpha)
{
	cairo_set_source_rgba(c, k.r, k.g, k.b, alpha);
}

/* `align`: 0 left, 0.5 centre, 1 right of (x, baseline y). */
static double draw_text(cairo_t *c, const char *s, double x, double y, double align, double size,
			bool bold)
{
	cairo_text_extents_t ext;
	cairo_select_font_face(c, font, CAIRO_FONT_SLANT_NORMAL,
			       bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
	cairo_set_font_size(c, size);
	cairo_text_extents(c, s, &ext);
	cairo_move_to(c, x - align * ext.x_advance, y);
	cairo_show_text(c, s);
	return ext.x_advance;
}

static void draw_line(cairo_t *c, double x0, double y0, double x1, double y1)
{
	cairo_move_to(c, x0, y0);
	cairo_line_to(c, x1, y1);
	cairo_stroke(c);
}

/* Grid, numbers at the left, and at the bottom where wanted. */
static void draw_frame(cairo_t *c, const struct panel *p, const char *label, int y_ticks,
		       bool x_numbers)
{
	char s[32];
	struct plot_ticks ty = plot_ticks(p->y_lo, p->y_hi, y_ticks, 0),
			  tx = plot_ticks(p->x_lo, p->x_hi, 12, 1);
	cairo_set_line_width(c, 1);
	for (int i = 0; i < ty.count; i++) {
		double v = ty.first + i * ty.step, y = floor(py(p, v)) + 0.5;
		set(c, pale, 1);
		draw_line(c, p->x, y, p->x + p->w, y);
		plot_tick_text(v, &ty, s, sizeof s);
		set(c, grey, 1);
		draw_text(c, s, p->x - 14, y + 7, 1, 20, false);
	}
	for (int i = 0; i < tx.count; i++) {
		double v = tx.first + i * tx.step, x = floor(px(p, v)) + 0.5;
		set(c, pale, 1);
		draw_line(c, x, p->y, x, p->y + p->h);
		if (!x_numbers)
			continue;
		plot_tick_text(v, &tx, s, sizeof s);
		set(c, grey, 1);
		draw_text(c, s, x, p->y + p->h + 30, 0.5, 20, false);
	}
	set(c, ink, 0.55);
	cairo_set_line_width(c, 1.5);
	draw_line(c, p->x, p->y + p->h + 0.5, p->x + p->w, p->y + p->h + 0.5);
	set(c, ink, 1);
	cairo_save(c);
	cairo_translate(c, 44, p->y + p->h / 2);
	cairo_rotate(c, -M_PI / 2);
	draw_text(c, label, 0, 0, 0.5, 21, false);
	cairo_restore(c);
}

/* A curve with gaps where a value is not finite; a lone point becomes a dot. */
static void draw_curve(cairo_t *c, const struct panel *p, const double *x, const double *y,
		       size_t n)
{
	double thick = cairo_get_line_width(c);
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(y[i]))
			continue;
		bool before = i > 0 && isfinite(y[i - 1]), after = i + 1 < n && isfinite(y[i + 1]);
		if (before)
			cairo_line_to(c, px(p, x[i]), py(p, y[i]));
		else
			cairo_move_to(c, px(p, x[i]), py(p, y[i]));
		if (!before && !after) {
			cairo_stroke(c);
			cairo_arc(c, px(p, x[i]), py(p, y[i]), 1.6 * thick, 0, 2 * M_PI);
			cairo_fill(c);
		}
	}
	cairo_stroke(c);
}

static void draw_dots(cairo_t *c, const struct panel *p, const double *x, const double *y, size_t n,
		      double radius, struct colour k)
{
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(y[i]))
			continue;
		cairo_arc(c, px(p, x[i]), py(p, y[i]), radius, 0, 2 * M_PI);
		cairo_set_source_rgb(c, 1, 1, 1);
		cairo_fill_preserve(c);
		set(c, k, 1);
		cairo_set_line_width(c, 3);
		cairo_stroke(c);
	}
}

static void widen_range(const double *v, size_t n, double *lo, double *hi)
{
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(v[i]))
			continue;
		*lo = fmin(*lo, v[i]);
		*hi = fmax(*hi, v[i]);
	}
}

static size_t last_finite(const double *v, size_t n)
{
	while (n && !isfinite(v[n - 1]))
		n--;
	return n;
}

/* The last values are written right of the panel, kept apart when they are close together. */
struct end_label {
	double y;
	struct colour k;
	char s[48];
};

static void draw_end_labels(cairo_t *c, const struct panel *p, struct end_label *l, size_t n)
{
	if (n == 2 && fabs(l[0].y - l[1].y) < 28) {
		double middle = (l[0].y + l[1].y) / 2, away = l[0].y <= l[1].y ? -14 : 14;
		l[0].y = middle + away;
		l[1].y = middle - away;
	}
	for (size_t i = 0; i < n; i++) {
		set(c, l[i].k, 1);
		draw_text(c, l[i].s, p->x + p->w + 16, l[i].y + 8, 0, 22, true);
	}
}

static double draw_legend(cairo_t *c, double x, double y, struct colour k, bool marker,
			  const char *s)
{
	set(c, k, 1);
	cairo_set_line_width(c, 4);
	draw_line(c, x, y - 7, x + 36, y - 7);
	if (marker) {
		cairo_arc(c, x + 18, y - 7, 5.5, 0, 2 * M_PI);
		cairo_set_source_rgb(c, 1, 1, 1);
		cairo_fill_preserve(c);
		set(c, k, 1);
		cairo_set_line_width(c, 3);
		cairo_stroke(c);
	}
	set(c, ink, 1);
	return x + 46 + draw_text(c, s, x + 46, y, 0, 21, false) + 34;
}

static void draw_losses(cairo_t *c, const struct panel *p, const struct metrics_curve *m,
			const double *smoothed)
{
	struct end_label l[2];
	size_t nl = 0, last = last_finite(m->loss, m->nstep),
	       val = last_finite(m->val_loss, m->nval);
	draw_frame(c, p, "loss", 8, false);
	cairo_save(c);
	cairo_rectangle(c, p->x - 8, p->y - 8, p->w + 16, p->h + 8);
	cairo_clip(c);
	cairo_set_line_join(c, CAIRO_LINE_JOIN_ROUND);
	cairo_set_line_cap(c, CAIRO_LINE_CAP_ROUND);
	set(c, blue, smoothed ? 0.28 : 1);
	cairo_set_line_width(c, smoothed ? 1.5 : 3.5);
	draw_curve(c, p, m->step, m->loss, m->nstep);
	if (smoothed) {
		set(c, blue, 1);
		cairo_set_line_width(c, 3.5);
		draw_curve(c, p, m->step, smoothed, m->nstep);
	}
	set(c, orange, 1);
	cairo_set_line_width(c, 3);
	draw_curve(c, p, m->val_step, m->val_loss, m->nval);
	draw_dots(c, p, m->val_step, m->val_loss, m->nval, m->nval > 60 ? 3 : 6, orange);
	cairo_restore(c);
	if (last) {
		double v = (smoothed ? smoothed : m->loss)[last - 1];
		l[nl] = (struct end_label){ .y = py(p, v), .k = blue };
		snprintf(l[nl++].s, sizeof l[0].s, "%.3f", v);
	}
	if (val) {
		l[nl] = (struct end_label){ .y = py(p, m->val_loss[val - 1]), .k = orange };
		snprintf(l[nl++].s, sizeof l[0].s, "%.3f", m->val_loss[val - 1]);
	}
	draw_end_labels(c, p, l, nl);
}

static void draw_rate(cairo_t *c, const struct panel *p, const struct metrics_curve *m)
{
	draw_frame(c, p, "learning rate", 3, true);
	cairo_save(c);
	cairo_rectangle(c, p->x - 8, p->y - 8, p->w + 16, p->h + 8);
	cairo_clip(c);
	size_t n = last_finite(m->learning_rate, m->nstep);
	if (n > 1) {
		cairo_move_to(c, px(p, m->step[0]), p->y + p->h);
		for (size_t i = 0; i < n; i++)
			if (isfinite(m->learning_rate[i]))
				cairo_line_to(c, px(p, m->step[i]), py(p, m->learning_rate[i]));
		cairo_line_to(c, px(p, m->step[n - 1]), p->y + p->h);
		set(c, green, 0.12);
		cairo_fill(c);
	}
	set(c, green, 1);
	cairo_set_line_width(c, 3);
	cairo_set_line_join(c, CAIRO_LINE_JOIN_ROUND);
	cairo_set_line_cap(c, CAIRO_LINE_CAP_ROUND);
	draw_curve(c, p, m->step, m->learning_rate, m->nstep);
	cairo_restore(c);
	set(c, ink, 1);
	draw_text(c, "step", p->x + p->w / 2, p->y + p->h + 66, 0.5, 21, false);
}

static void head(cairo_t *c, const struct plot_loss *p, const struct panel *top, bool smoothed)
{
	set(c, ink, 1);
	draw_text(c, p->title, top->x, 62, 0, 34, true);
	set(c, grey, 1);
	if (p->subtitle)
		draw_text(c, p->subtitle, top->x, 98, 0, 21, false);
	double y = p->subtitle ? 140 : 116,
	       x = draw_legend(c, top->x, y, blue, false,
			       smoothed ? "training loss (smoothed)" : "training loss");
	if (p->curve.nval)
		x = draw_legend(c, x, y, orange, true, "validation loss");
	draw_legend(c, x, y, green, false, "learning rate");
}

static void draw(cairo_t *c, const struct plot_loss *p, const double *smoothed)
{
	const struct metrics_curve *m = &p->curve;
	struct panel top = { .x = 132, .y = 172, .w = WIDTH - 132 - 128, .h = 448 }, low = top;
	double lo = INFINITY, hi = -INFINITY, rate_hi = 0, rate_lo = 0;
	widen_range(m->loss, m->nstep, &lo, &hi);
	widen_range(m->val_loss, m->nval, &lo, &hi);
	widen_range(m->learning_rate, m->nstep, &rate_lo, &rate_hi);
	double pad = hi > lo ? 0.06 * (hi - lo) : 0.5 * fmax(fabs(hi), 1e-3);
	top.y_lo = lo - pad;
	top.y_hi = hi + pad;
	if (lo >= 0 && top.y_lo < 0)
		top.y_lo = 0;
	double x_lo = INFINITY, x_hi = -INFINITY;
	widen_range(m->step, m->nstep, &x_lo, &x_hi);
	widen_range(m->val_step, m->nval, &x_lo, &x_hi);
	top.x_lo = x_lo <= 1 ? 0 : x_lo;
	top.x_hi = x_hi > top.x_lo ? x_hi : top.x_lo + 1;
	low.x_lo = top.x_lo;
	low.x_hi = top.x_hi;
	low.y = 664;
	low.h = 140;
	low.y_lo = 0;
	low.y_hi = rate_hi > 0 ? rate_hi * 1.12 : 1;
	cairo_set_source_rgb(c, 1, 1, 1);
	cairo_paint(c);
	head(c, p, &top, smoothed != NULL);
	draw_losses(c, &top, m, smoothed);
	draw_rate(c, &low, m);
}

int plot_loss(const char *path, const struct plot_loss *p, struct err *e)
{
	const struct metrics_curve *m = &p->curve;
	if (!last_finite(m->loss, m->nstep) && !last_finite(m->val_loss, m->nval))
		return err_set(e, ERR_INPUT, "%s: there is no loss to draw", path);
	double *smoothed = NULL;
	if (m->nstep >= PLOT_SMOOTH_FROM) {
		smoothed = mem_array(2 * m->nstep, sizeof *smoothed);
		if (!smoothed)
			return err_nomem(e, 2 * m->nstep * sizeof *smoothed, "the loss plot");
		plot_smooth(m->loss, m->nstep, smoothed);
	}
	cairo_surface_t *s = cairo_image_surface_create(CAIRO_FORMAT_RGB24, WIDTH, HEIGHT);
	cairo_t *c = cairo_create(s);
	draw(c, p, smoothed);
	mem_free(smoothed);
	return canvas_png(s, c, path, "the loss plot", e);
}
