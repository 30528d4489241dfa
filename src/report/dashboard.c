/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard.c - see dashboard.h. Four cards (speed, time by microbatch size, memory, links), each
 * drawn once on a canvas: side by side they are the picture, between tables they are the page. */
#include "report/dashboard.h"
#include "report/canvas.h"
#include "report/dashboard_priv.h"
#include "report/text.h"

#include "base/buf.h"
#include "base/err.h"
#include "file/atomic.h"
#include "plan/profile.h"

#include <cairo/cairo.h>
#include <stdio.h>

enum {
	PAGE = 1600,
	MARGIN = 40,
	GAP = 32,
	HEAD = 132,
	CARD_W = (PAGE - 2 * MARGIN - GAP) / 2,
	PAD = 28
};

static const struct {
	const char *title, *note;
	double (*draw)(struct canvas *c, const struct profile *p, double width);
} cards[] = {
	{ "Speed",
	  "tokens per second, forward and backward of all layers, at the best microbatch size",
	  dashboard_speed },
	{ "A layer", "milliseconds forward and backward, by sequences in a microbatch",
	  dashboard_times },
	{ "Memory", "GiB, and how many layers there is room for", dashboard_memory },
	{ "Links", "from the row to the column: bandwidth, latency", dashboard_links },
};

enum { CARDS = sizeof cards / sizeof *cards };

static const struct canvas_text title_style = { .size = 21, .bold = true, .role = CANVAS_INK },
				note_style = { .size = 14.5, .role = CANVAS_MUTED };

/* Draws title, note and card; returns the height with its frame. */
static double draw_card(struct canvas *c, size_t i, const struct profile *p)
{
	canvas_write(c, cards[i].title, PAD, PAD + 16, title_style);
	canvas_write(c, cards[i].note, PAD, PAD + 41, note_style);
	struct canvas inner = *c;
	inner.x += PAD;
	inner.y += PAD + 64;
	return PAD + 64 + cards[i].draw(&inner, p, CARD_W - 2 * PAD) + PAD - 6;
}

static double card_height(size_t i, const struct profile *p)
{
	struct canvas nowhere = { .cairo = NULL };
	return draw_card(&nowhere, i, p);
}

static void facts_text(const struct profile *p, char *s, size_t cap)
{
	snprintf(s, cap,
		 "%d layers, width %d, sequences of %d tokens, %s; %d device%s on %d host%s%s",
		 p->layers, p->hidden, p->sequence_len, p->dtype, p->devices,
		 p->devices == 1 ? "" : "s", p->hosts, p->hosts == 1 ? "" : "s",
		 profile_estimated(p) ? "; estimated" : "");
}

/* ---- the picture ---- */

static void draw_page(struct canvas *page, const struct profile *p, double h1, double h2)
{
	char line[512];
	canvas_rect(page, 0, 0, PAGE, HEAD + h1 + GAP + h2 + MARGIN, 0, CANVAS_PAGE, 1);
	text_clean(line, sizeof line, p->model, 60);
	canvas_write(page, line, MARGIN, 66,
		     (struct canvas_text){ .size = 34, .bold = true, .role = CANVAS_INK });
	facts_text(p, line, sizeof line);
	canvas_write(page, line, MARGIN, 102,
		     (struct canvas_text){ .size = 18, .role = CANVAS_MUTED });
	for (size_t i = 0; i < CARDS; i++) {
		double h = i < 2 ? h1 : h2;
		struct canvas c = { .cairo = page->cairo,
				    .x = MARGIN + (double)(i % 2) * (CARD_W + GAP),
				    .y = HEAD + (i < 2 ? 0 : h1 + GAP) };
		canvas_rect(&c, -1, -1, CARD_W + 2, h + 2, 15, CANVAS_GRID, 1);
		canvas_rect(&c, 0, 0, CARD_W, h, 14, CANVAS_CARD, 1);
		draw_card(&c, i, p);
	}
}

static double larger(double a, double b) { return a > b ? a : b; }

static int write_png(const struct profile *p, const char *path, struct err *e)
{
	double h1 = larger(card_height(0, p), card_height(1, p)),
	       h2 = larger(card_height(2, p), card_height(3, p));
	cairo_surface_t *s = cairo_image_surface_create(CAIRO_FORMAT_RGB24, PAGE,
							(int)(HEAD + h1 + GAP + h2 + MARGIN));
	cairo_t *c = cairo_create(s);
	draw_page(&(struct canvas){ .cairo = c }, p, h1, h2);
	return canvas_png(s, c, path, "the picture of the profile", e);
}

/* ---- the page ---- */

static const char style[] =
	"body { margin: 0; padding: 32px 24px 48px; background: var(--k0); color: var(--k2); font: "
	"15px/1.5 system-ui, \"DejaVu "
	"Sans\", sans-serif }\n"
	"main { max-width: 1500px; margin: auto }\n"
	"h1 { font-size: 28px; margin: 0 } h2 { font-size: 18px; margin: 32px 0 10px }\n"
	"p { margin: 2px 0 20px; color: var(--k3) }\n"
	".cards { display: grid; gap: 20px; grid-template-columns: repeat(auto-fit, "
	"minmax(min(100%, 520px), 1fr)) }\n"
	".card { background: var(--k1); border: 1px solid var(--k4); border-radius: 12px; "
	"overflow: hidden }\n"
	".card svg { display: block; width: 100%; height: auto; font-family: system-ui, \"DejaVu "
	"Sans\", sans-serif }\n"
	".wide { overflow-x: auto; background: var(--k1); border: 1px solid var(--k4); "
	"border-radius: 12px }\n"
	"table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }\n"
	"th, td { padding: 7px 14px; text-align: right; white-space: nowrap; border-top: 1px solid "
	"var(--k4) }\n"
	"thead th { border-top: 0; color: var(--k3); font-weight: 600; font-size: 13px }\n"
	"th.t, td.t { text-align: left }\n";

static void put_cell(struct buf *b, const char *s)
{
	buf_adds(b, "<td class=\"t\">");
	text_markup(b, s, 80);
	buf_adds(b, "</td>");
}

static void device_table(const struct profile *p, struct buf *b)
{
	int size[DASHBOARD_SIZES], n = dashboard_sizes(p, size);
	buf_adds(b, "<h2>Devices</h2>\n<div class=\"wide\"><table>\n<thead><tr><th "
		    "class=\"t\">device</th><th class=\"t\">kind</th><th "
		    "class=\"t\">host</th><th>memory "
		    "GiB</th><th>others</th><th>fixed</th><th>reserve</th><th>a microbatch, a "
		    "layer</th>");
	for (int i = 0; i < n; i++)
		buf_addf(b, "<th>ms at %d</th>", size[i]);
	buf_adds(b, "</tr></thead>\n<tbody>\n");
	for (int d = 0; d < p->devices; d++) {
		const struct profile_device *v = &p->device[d];
		buf_adds(b, "<tr>");
		put_cell(b, v->id);
		put_cell(b, v->kind);
		put_cell(b, p->host[v->host].name);
		buf_addf(b, "<td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td><td>%.4f</td>",
			 v->memory_gib, v->used_gib, v->fixed_gib, dashboard_reserve(v),
			 curve_at(&v->kept_gib, 1));
		for (int i = 0; i < n; i++)
			buf_addf(b, "<td>%.3g</td>", dashboard_layer_ms(v, size[i]));
		buf_adds(b, "</tr>\n");
	}
	buf_adds(b, "</tbody></table></div>\n");
}

static void link_table(const struct profile *p, struct buf *b)
{
	if (p->hosts < 2)
		return;
	buf_adds(b, "<h2>Links</h2>\n<div class=\"wide\"><table>\n<thead><tr><th "
		    "class=\"t\">from</th><th "
		    "class=\"t\">to</th><th>MB/s</th><th>latency ms</th></tr></thead>\n<tbody>\n");
	for (int i = 0; i < p->hosts && i < DASHBOARD_HOSTS; i++)
		for (int k = 0; k < p->hosts && k < DASHBOARD_HOSTS; k++) {
			if (i == k)
				continue;
			buf_adds(b, "<tr>");
			put_cell(b, p->host[i].name);
			put_cell(b, p->host[k].name);
			buf_addf(b, "<td>%.1f</td><td>%.3f</td></tr>\n",
				 p->bandwidth[i * p->hosts + k] * 1e3,
				 p->latency_ms[i * p->hosts + k]);
		}
	buf_adds(b, "</tbody></table></div>\n");
}

void dashboard_html(const struct profile *p, struct buf *b)
{
	char line[512];
	buf_adds(b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
		    "name=\"viewport\" "
		    "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
		    "content=\"light dark\">\n<title>");
	text_markup(b, p->model, 60);
	buf_adds(b, ": devices and links</title>\n<style>\n");
	canvas_style(b);
	buf_adds(b, style);
	buf_adds(b, "</style>\n</head>\n<body>\n<main>\n<h1>");
	text_markup(b, p->model, 60);
	buf_adds(b, "</h1>\n<p>");
	facts_text(p, line, sizeof line);
	text_markup(b, line, 0);
	if (p->source && p->source[0]) {
		buf_adds(b, ". ");
		text_markup(b, p->source, 200);
	}
	buf_adds(b, "</p>\n<div class=\"cards\">\n");
	for (size_t i = 0; i < CARDS; i++) {
		struct canvas c = { .svg = b };
		buf_addf(b,
			 "<div class=\"card\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" "
			 "aria-label=\"%s: %s\">\n",
			 CARD_W, card_height(i, p), cards[i].title, cards[i].note);
		draw_card(&c, i, p);
		buf_adds(b, "</svg></div>\n");
	}
	buf_adds(b, "</div>\n");
	device_table(p, b);
	link_table(p, b);
	buf_adds(b, "</main>\n</body>\n</html>\n");
}

int dashboard_write(const struct profile *p, const char *dir, struct err *e)
{
	struct buf path = BUF_INIT, html = BUF_INIT;
	int rc;
	buf_addf(&path, "%s/profile.png", dir);
	TRYOUT(buf_ok(&path, e));
	TRYOUT(write_png(p, path.p, e));
	buf_reset(&path);
	buf_addf(&path, "%s/profile.html", dir);
	dashboard_html(p, &html);
	TRYOUT(buf_ok(&path, e));
	TRYOUT(buf_ok(&html, e));
	rc = atomic_write_file(path.p, html.p, html.n, e);
out:
	buf_release(&path);
	buf_release(&html);
	return rc;
}
