/* canvas.c - see canvas.h. */
#include "report/canvas.h"

#include "base/buf.h"

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
};

enum canvas_role canvas_series(size_t i) { return CANVAS_FIRST_SERIES + i % CANVAS_SERIES; }

/* ---- text from outside ---- */

/* Bytes of the character at `s`, or 0 where it is none that can be shown. */
static size_t character(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	if (p[0] < 0x80)
		return p[0] >= 0x20 && p[0] != 0x7f;
	size_t n = p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
	uint32_t v = p[0] & (0xffu >> (n + 1));
	if (p[0] >= 0xf5)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3fu);
	}
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	bool control = v < 0xa0 || (v >= 0x200b && v <= 0x200f) || (v >= 0x2028 && v <= 0x202e) || (v >= 0x2060 && v <= 0x206f) ||
		       v == 0xfeff || (v & 0xfffe) == 0xfffe;
	return n && v >= least[n] && v <= 0x10ffff && !(v >= 0xd800 && v < 0xe000) && !control ? n : 0;
}

static void clean(const char *s, size_t most, void (*put)(void *ctx, const char *p, size_t n), void *ctx)
{
	size_t all = 0;
	for (const char *p = s; *p; all++) {
		size_t n = character(p);
		p += n ? n : 1;
	}
	size_t keep = most && all > most ? most - 1 : all;
	for (size_t i = 0; i < keep; i++) {
		size_t n = character(s);
		put(ctx, n ? s : "?", n ? n : 1);
		s += n ? n : 1;
	}
	if (keep < all)
		put(ctx, "…", strlen("…"));
}

static void put_markup(void *ctx, const char *p, size_t n)
{
	struct buf *b = ctx;
	switch (*p) {
	case '&':
		buf_adds(b, "&amp;");
		break;
	case '<':
		buf_adds(b, "&lt;");
		break;
	case '>':
		buf_adds(b, "&gt;");
		break;
	case '"':
		buf_adds(b, "&quot;");
		break;
	case '\'':
		buf_adds(b, "&#39;");
		break;
	default:
		buf_add(b, p, n);
	}
}

void canvas_escape(struct buf *out, const char *s, size_t most) { clean(s ? s : "", most, put_markup, out); }

struct place {
	char *p;
	size_t n, cap;
};

static void put_bytes(void *ctx, const char *p, size_t n)
{
	struct place *o = ctx;
	if (o->n + n + 1 > o->cap)
		return;
	memcpy(o->p + o->n, p, n);
	o->n += n;
}

void canvas_clean(char *out, size_t cap, const char *s, size_t most)
{
	struct place o = { out, 0, cap };
	clean(s ? s : "", most, put_bytes, &o);
	out[o.n] = 0;
}

/* ---- shapes ---- */

static void source(cairo_t *c, enum canvas_role role, double opacity)
{
	uint32_t v = colours[role].light;
	cairo_set_source_rgba(c, (v >> 16) / 255.0, (v >> 8 & 255) / 255.0, (v & 255) / 255.0, opacity);
}

void canvas_rect(struct canvas *v, double x, double y, double w, double h, double r, enum canvas_role role, double opacity)
{
	cairo_t *c = v->cairo;
	x += v->x;
	y += v->y;
	if (!(w > 0 && h > 0))
		return;
	r = fmin(r, fmin(w, h) / 2);
	if (v->svg)
		buf_addf(
			v->svg,
			"<rect class=\"k%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" opacity=\"%.2f\"/>\n",
			role, x, y, w, h, r, opacity);
	if (!c)
		return;
	cairo_new_sub_path(c);
	cairo_arc(c, x + w - r, y + r, r, -M_PI / 2, 0);
	cairo_arc(c, x + w - r, y + h - r, r, 0, M_PI / 2);
	cairo_arc(c, x + r, y + h - r, r, M_PI / 2, M_PI);
	cairo_arc(c, x + r, y + r, r, M_PI, 1.5 * M_PI);
	cairo_close_path(c);
	source(c, role, opacity);
	cairo_fill(c);
}

void canvas_line(struct canvas *v, const double *x, const double *y, size_t n, double width, enum canvas_role role)
{
	cairo_t *c = v->cairo;
	if (v->svg) {
		buf_addf(v->svg, "<polyline class=\"l%d\" stroke-width=\"%.1f\" points=\"", role, width);
		for (size_t i = 0; i < n; i++)
			buf_addf(v->svg, "%s%.1f,%.1f", i ? " " : "", v->x + x[i], v->y + y[i]);
		buf_adds(v->svg, "\"/>\n");
	}
	if (!c)
		return;
	cairo_new_path(c);
	for (size_t i = 0; i < n; i++)
		cairo_line_to(c, v->x + x[i], v->y + y[i]);
	source(c, role, 1);
	cairo_set_line_width(c, width);
	cairo_set_line_join(c, CAIRO_LINE_JOIN_ROUND);
	cairo_set_line_cap(c, CAIRO_LINE_CAP_ROUND);
	cairo_stroke(c);
}

void canvas_dot(struct canvas *v, double x, double y, double radius, enum canvas_role role)
{
	cairo_t *c = v->cairo;
	if (v->svg)
		buf_addf(v->svg, "<circle class=\"k%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", role, v->x + x, v->y + y, radius);
	if (!c)
		return;
	cairo_new_path(c);
	cairo_arc(c, v->x + x, v->y + y, radius, 0, 2 * M_PI);
	source(c, role, 1);
	cairo_fill(c);
}

void canvas_write(struct canvas *v, const char *s, double x, double y, struct canvas_text t)
{
	cairo_t *c = v->cairo;
	if (v->svg) {
		buf_addf(v->svg, "<text class=\"k%d\" x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\"%s%s>", t.role, v->x + x, v->y + y,
			 t.size, t.bold ? " font-weight=\"700\"" : "",
			 t.align > 0.75   ? " text-anchor=\"end\""
			 : t.align > 0.25 ? " text-anchor=\"middle\""
					  : "");
		canvas_escape(v->svg, s, 0);
		buf_adds(v->svg, "</text>\n");
	}
	if (!c)
		return;
	char text[512];
	cairo_text_extents_t ext;
	canvas_clean(text, sizeof text, s, 0);
	cairo_select_font_face(c, font, CAIRO_FONT_SLANT_NORMAL, t.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
	cairo_set_font_size(c, t.size);
	cairo_text_extents(c, text, &ext);
	cairo_move_to(c, v->x + x - t.align * ext.x_advance, v->y + y);
	source(c, t.role, 1);
	cairo_show_text(c, text);
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
		buf_addf(b, ".k%d { fill: var(--k%d) } .l%d { fill: none; stroke: var(--k%d) }\n", i, i, i, i);
}
