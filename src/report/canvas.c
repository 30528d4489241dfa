/* SPDX-License-Identifier: Apache-2.0 */
/* canvas.c - see canvas.h. */
#include "report/canvas.h"

#include "base/buf.h"
#include "base/err.h"
#include "file/atomic.h"
#include "report/text.h"

#include <cairo/cairo.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char font[] = "DejaVu Sans";

static const struct {
	uint32_t light, dark;
} colours[CANVAS_ROLES] = {
	[CANVAS_PAGE] = { 0xf6f7f9, 0x0d1117 },
	[CANVAS_CARD] = { 0xffffff, 0x161b22 },
	[CANVAS_INK] = { 0x111827, 0xe6edf3 },
	[CANVAS_MUTED] = { 0x6b7280, 0x9aa4b0 },
	[CANVAS_GRID] = { 0xe5e7eb, 0x30363d },
	[CANVAS_FIRST_SERIES] = { 0x2563eb, 0x60a5fa },
	{ 0xea580c, 0xfb923c },
	{ 0x16a34a, 0x4ade80 },
	{ 0x9333ea, 0xc084fc },
	{ 0x0891b2, 0x22d3ee },
	{ 0xdc2626, 0xf87171 },
	{ 0xa16207, 0xfacc15 },
	{ 0xdb2777, 0xf472b6 },
	{ 0x4338ca, 0x818cf8 },
	{ 0x65a30d, 0xa3e635 },
	{ 0x78350f, 0xd6a77a },
	{ 0x475569, 0x94a3b8 },
	{ 0xc026d3, 0xe879f9 },
	{ 0x0f766e, 0x2dd4bf },
	{ 0x9f1239, 0xfda4af },
	{ 0x14532d, 0x86efac },
};

enum canvas_role canvas_series(size_t i) { return CANVAS_FIRST_SERIES + i % CANVAS_SERIES; }

/* ---- shapes ---- */

static void set_source(cairo_t *c, enum canvas_role role, double opacity)
{
	uint32_t v = colours[role].light;
	cairo_set_source_rgba(c, (v >> 16) / 255.0, (v >> 8 & 255) / 255.0, (v & 255) / 255.0,
			      opacity);
}

void canvas_rect(struct canvas *v, double x, double y, double w, double h, double r,
		 enum canvas_role role, double opacity)
{
	cairo_t *c = v->cairo;
	x += v->x;
	y += v->y;
	if (!(w > 0 && h > 0))
		return;
	r = fmin(r, fmin(w, h) / 2);
	if (v->svg)
		buf_addf(v->svg,
			 "<rect class=\"k%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			 "rx=\"%.1f\" opacity=\"%.2f\"/>\n",
			 role, x, y, w, h, r, opacity);
	if (!c)
		return;
	cairo_new_sub_path(c);
	cairo_arc(c, x + w - r, y + r, r, -M_PI / 2, 0);
	cairo_arc(c, x + w - r, y + h - r, r, 0, M_PI / 2);
	cairo_arc(c, x + r, y + h - r, r, M_PI / 2, M_PI);
	cairo_arc(c, x + r, y + r, r, M_PI, 1.5 * M_PI);
	cairo_close_path(c);
	set_source(c, role, opacity);
	cairo_fill(c);
}

void canvas_line(struct canvas *v, const double *x, const double *y, size_t n, double width,
		 enum canvas_role role)
{
	cairo_t *c = v->cairo;
	if (v->svg) {
		buf_addf(v->svg, "<polyline class=\"l%d\" stroke-width=\"%.1f\" points=\"", role,
			 width);
		for (size_t i = 0; i < n; i++)
			buf_addf(v->svg, "%s%.1f,%.1f", i ? " " : "", v->x + x[i], v->y + y[i]);
		buf_adds(v->svg, "\"/>\n");
	}
	if (!c)
		return;
	cairo_new_path(c);
	for (size_t i = 0; i < n; i++)
		cairo_line_to(c, v->x + x[i], v->y + y[i]);
	set_source(c, role, 1);
	cairo_set_line_width(c, width);
	cairo_set_line_join(c, CAIRO_LINE_JOIN_ROUND);
	cairo_set_line_cap(c, CAIRO_LINE_CAP_ROUND);
	cairo_stroke(c);
}

void canvas_dot(struct canvas *v, double x, double y, double radius, enum canvas_role role)
{
	cairo_t *c = v->cairo;
	if (v->svg)
		buf_addf(v->svg, "<circle class=\"k%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n",
			 role, v->x + x, v->y + y, radius);
	if (!c)
		return;
	cairo_new_path(c);
	cairo_arc(c, v->x + x, v->y + y, radius, 0, 2 * M_PI);
	set_source(c, role, 1);
	cairo_fill(c);
}

static void set_font(cairo_t *c, struct canvas_text t)
{
	cairo_select_font_face(c, font, CAIRO_FONT_SLANT_NORMAL,
			       t.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
	cairo_set_font_size(c, t.size);
}

void canvas_write(struct canvas *v, const char *s, double x, double y, struct canvas_text t)
{
	cairo_t *c = v->cairo;
	if (v->svg) {
		buf_addf(v->svg,
			 "<text class=\"k%d\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\"%s%s>",
			 t.role, v->x + x, v->y + y, t.size, t.bold ? " font-weight=\"700\"" : "",
			 t.align > 0.75   ? " text-anchor=\"end\""
			 : t.align > 0.25 ? " text-anchor=\"middle\""
					  : "");
		text_markup(v->svg, s, 0);
		buf_adds(v->svg, "</text>\n");
	}
	if (!c)
		return;
	char text[512];
	cairo_text_extents_t ext;
	text_clean(text, sizeof text, s, 0);
	set_font(c, t);
	cairo_text_extents(c, text, &ext);
	cairo_move_to(c, v->x + x - t.align * ext.x_advance, v->y + y);
	set_source(c, t.role, 1);
	cairo_show_text(c, text);
}

double canvas_width(const char *s, struct canvas_text t)
{
	char text[512];
	cairo_text_extents_t ext;
	cairo_surface_t *nowhere = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
	cairo_t *c = cairo_create(nowhere);
	text_clean(text, sizeof text, s, 0);
	set_font(c, t);
	cairo_text_extents(c, text, &ext);
	cairo_destroy(c);
	cairo_surface_destroy(nowhere);
	return ext.x_advance;
}

double canvas_write_within(struct canvas *c, const char *s, double x, double y,
			   struct canvas_text t, double room)
{
	char text[256];
	double width;
	text_clean(text, sizeof text, s, sizeof text / 4);
	size_t most = strlen(text);
	while ((width = canvas_width(text, t)) > room && most > 1)
		text_clean(text, sizeof text, s, --most);
	canvas_write(c, text, x, y, t);
	return width;
}

static cairo_status_t to_buffer(void *ctx, const unsigned char *data, unsigned n)
{
	struct buf *b = ctx;
	buf_add(b, data, n);
	return b->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

int canvas_png(void *surface, void *cairo, const char *path, const char *what, struct err *e)
{
	struct buf png = BUF_INIT;
	cairo_status_t st = cairo_status(cairo);
	if (st == CAIRO_STATUS_SUCCESS)
		st = cairo_surface_write_to_png_stream(surface, to_buffer, &png);
	cairo_destroy(cairo);
	cairo_surface_destroy(surface);
	int rc = st == CAIRO_STATUS_SUCCESS     ? atomic_write_file(path, png.p, png.n, e)
		 : st == CAIRO_STATUS_NO_MEMORY ? err_nomem(e, png.n, what)
						: err_set(e, ERR_INTERNAL, "%s: cairo: %s", path,
							  cairo_status_to_string(st));
	buf_release(&png);
	return rc;
}

void canvas_style(struct buf *b)
{
	for (int dark = 0; dark < 2; dark++) {
		buf_adds(b, dark ? "@media (prefers-color-scheme: dark) { :root {" : ":root {");
		for (int i = 0; i < CANVAS_ROLES; i++)
			buf_addf(b, " --k%d: #%06x;", i, dark ? colours[i].dark : colours[i].light);
		buf_adds(b, dark ? " } }\n" : " }\n");
	}
	for (int i = 0; i < CANVAS_ROLES; i++)
		buf_addf(b, ".k%d { fill: var(--k%d) } .l%d { fill: none; stroke: var(--k%d) }\n",
			 i, i, i, i);
}
