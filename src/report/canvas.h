/* SPDX-License-Identifier: Apache-2.0 */
/* canvas.h - one drawing, two results: pixels through cairo, or SVG whose colours come from the
 * page's style sheet (light and dark).
 *
 * Shapes name a role, not a colour. Coordinates are in units of the drawing, y down, shifted by (x,
 * y) of the canvas. Without both `cairo` and `svg` nothing is drawn; this is used to compute the
 * height of a part. */
#ifndef HS_REPORT_CANVAS_H
#define HS_REPORT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct err;

enum { CANVAS_SERIES = 16 };
enum canvas_role {
	CANVAS_PAGE,
	CANVAS_CARD,
	CANVAS_INK,
	CANVAS_MUTED,
	CANVAS_GRID,
	CANVAS_FIRST_SERIES,
	CANVAS_ROLES = CANVAS_FIRST_SERIES + CANVAS_SERIES,
};

struct canvas {
	void *cairo;     /* cairo_t */
	struct buf *svg; /* shapes are appended, without the <svg> around them */
	double x, y;
};

struct canvas_text {
	double size;
	double align; /* 0: begins at x, 0.5: centred, 1: ends there */
	bool bold;
	enum canvas_role role;
};

enum canvas_role canvas_series(size_t i); /* repeats after CANVAS_SERIES */
void canvas_rect(struct canvas *c, double x, double y, double w, double h, double radius,
		 enum canvas_role role, double opacity);
void canvas_line(struct canvas *c, const double *x, const double *y, size_t n, double width,
		 enum canvas_role role);
void canvas_dot(struct canvas *c, double x, double y, double radius, enum canvas_role role);
/* `y` is the baseline. `s` may hold any bytes: invalid UTF-8 and unprintable characters are shown
 * as '?', markup is shown literally. */
void canvas_write(struct canvas *c, const char *s, double x, double y, struct canvas_text t);

/* The same, cut with an ellipsis where it would be wider than `room`. Returns its width. */
double canvas_write_within(struct canvas *c, const char *s, double x, double y,
			   struct canvas_text t, double room);
/* Width of a text in the font of the picture (the page's font may differ a little). */
double canvas_width(const char *s, struct canvas_text t);

/* Writes what was drawn (a cairo_surface_t and its cairo_t) to a PNG at `path`, and destroys both
 * in any case. `what` names the picture where memory runs out. */
int canvas_png(void *surface, void *cairo, const char *path, const char *what, struct err *e);

/* ".k0{fill:...}" for both colour schemes, for the page's <style>. */
void canvas_style(struct buf *out);

#endif
