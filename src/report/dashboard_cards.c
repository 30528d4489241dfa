/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard_cards.c - the four drawings of the dashboard, see dashboard_priv.h. Each device has its
 * colour, the same in all of them. */
#include "report/dashboard_priv.h"
#include "report/plot_axis.h"
#include "report/text.h"

#include "plan/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct canvas_text name_style = { .size = 16, .bold = true, .role = CANVAS_INK },
				small_style = { .size = 14, .role = CANVAS_MUTED },
				value_style = { .size = 16, .role = CANVAS_INK };

static struct canvas_text aligned(struct canvas_text t, double align)
{
	t.align = align;
	return t;
}

double dashboard_layer_ms(const struct profile_device *d, int m)
{
	return curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m);
}

double dashboard_reserve(const struct profile_device *d)
{
	return d->reserve_gib >= 0 ? d->reserve_gib : 0.05 * d->memory_gib;
}

int dashboard_sizes(const struct profile *p, int size[DASHBOARD_SIZES])
{
	int most = 0, n = 0;
	for (int i = 0; i < p->devices; i++) {
		most = p->device[i].forward_ms.n > most ? p->device[i].forward_ms.n : most;
		most = p->device[i].backward_ms.n > most ? p->device[i].backward_ms.n : most;
	}
	if (!most)
		most = p->global_batch > 0 && p->global_batch < 8 ? p->global_batch : 8;
	for (int m = 1; m <= most && n < DASHBOARD_SIZES;
	     m = most <= DASHBOARD_SIZES ? m + 1 : 2 * m)
		size[n++] = m;
	return n;
}

static enum canvas_role device_colour(int device) { return canvas_series((size_t)device); }

static double more(struct canvas *c, int all, int shown, const char *what, double y)
{
	char s[64];
	if (all <= shown)
		return y;
	snprintf(s, sizeof s, "… and %d more %s", all - shown, what);
	canvas_write(c, s, 0, y + 16, small_style);
	return y + 26;
}

/* 812, 9.6, 12.3k, 1.2M: three digits. */
static void rate_text(double v, char *s, size_t cap)
{
	const char *unit = v >= 999500 ? "M" : v >= 9995 ? "k" : "";
	v /= *unit == 'M' ? 1e6 : *unit == 'k' ? 1e3 : 1;
	snprintf(s, cap, "%.*f%s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, unit);
}

/* ---- speed ---- */

static double best_rate(const struct profile *p, const struct profile_device *d)
{
	int size[DASHBOARD_SIZES], n = dashboard_sizes(p, size);
	double best = 0;
	for (int i = 0; i < n; i++) {
		double ms = dashboard_layer_ms(d, size[i]) * p->layers;
		if (ms > 0)
			best = fmax(best, size[i] * (double)p->sequence_len / ms * 1e3);
	}
	return best;
}

/* The name of a device above its bar, followed by its kind; both end before `right`. */
static void device_head(struct canvas *c, const struct profile *p, int i, double y, double right)
{
	enum { KIND = 222, GAP = 12 };
	char what[200];
	const struct profile_device *d = &p->device[i];
	canvas_write_within(c, d->id, 0, y, name_style, KIND - GAP);
	snprintf(what, sizeof what, "%.80s, %.80s", d->kind, p->host[d->host].name);
	canvas_write_within(c, what, KIND, y, small_style, right - GAP - KIND);
}

double dashboard_speed(struct canvas *c, const struct profile *p, double width)
{
	double top = 0, sum = 0, y = 0;
	for (int i = 0; i < p->devices; i++) {
		double v = best_rate(p, &p->device[i]);
		top = fmax(top, v);
		sum += v;
	}
	for (int i = 0; i < p->devices && i < DASHBOARD_DEVICES; i++, y += 46) {
		char s[32];
		double v = best_rate(p, &p->device[i]);
		rate_text(v, s, sizeof s);
		device_head(c, p, i, y + 14, width - 66 - canvas_width(s, name_style));
		canvas_write(c, s, width - 66, y + 14, aligned(name_style, 1));
		snprintf(s, sizeof s, "%.0f %%", sum > 0 ? 100 * v / sum : 0);
		canvas_write(c, s, width, y + 14, aligned(small_style, 1));
		canvas_rect(c, 0, y + 22, width, 10, 5, CANVAS_GRID, 1);
		canvas_rect(c, 0, y + 22, top > 0 ? fmax(10, width * v / top) : 0, 10, 5,
			    device_colour(i), 1);
	}
	return more(c, p->devices, DASHBOARD_DEVICES, "devices", y);
}

/* ---- time of a layer ---- */

struct axis {
	double lo, hi; /* of the logarithm, or of the value */
	bool log;
};

static double at(const struct axis *a, double v, double height)
{
	double x = a->log ? log10(v) : v;
	return height - (x - a->lo) / (a->hi - a->lo) * height;
}

static void time_grid(struct canvas *c, const struct axis *a, double left, double right,
		      double height)
{
	static const double mantissa[] = { 1, 2, 5 };
	struct plot_ticks t = plot_ticks(a->lo, a->hi, 5, 0);
	bool fine = a->hi - a->lo < 2.2; /* decades */
	for (int i = 0; i < (a->log ? 72 : t.count); i++) {
		double v = a->log ? mantissa[i % 3] * pow(10, i / 3 - 9) : t.first + i * t.step;
		char s[32];
		if (a->log &&
		    (log10(v) < a->lo - 1e-9 || log10(v) > a->hi + 1e-9 || (!fine && i % 3)))
			continue;
		double y = at(a, v, height);
		canvas_line(c, (double[]){ left, right }, (double[]){ y, y }, 2, 1, CANVAS_GRID);
		if (a->log)
			snprintf(s, sizeof s, "%g", v);
		else
			plot_tick_text(v, &t, s, sizeof s);
		canvas_write(c, s, left - 10, y + 5, aligned(small_style, 1));
	}
}

struct end {
	int device;
	double y;
};

/* Names at the ends of the lines, kept apart; with many devices only as many as there is
 * space for. */
static void time_names(struct canvas *c, const struct profile *p, struct end *end, int n, double x,
		       double room, double height)
{
	for (int i = 1; i < n; i++)
		for (int k = i; k > 0 && end[k].y < end[k - 1].y; k--) {
			struct end swap = end[k];
			end[k] = end[k - 1];
			end[k - 1] = swap;
		}
	double least = fmin(19, (height + 20) / (n > 0 ? n : 1));
	for (int i = 1; i < n; i++)
		end[i].y = fmax(end[i].y, end[i - 1].y + least);
	if (n && end[n - 1].y > height + 10)
		end[n - 1].y = height + 10;
	for (int i = n - 2; i >= 0; i--)
		end[i].y = fmin(end[i].y, end[i + 1].y - least);
	for (int i = 0; i < n; i++)
		canvas_write_within(c, p->device[end[i].device].id, x, end[i].y + 5,
				    (struct canvas_text){ .size = fmin(14, least * 0.8),
							  .role = device_colour(end[i].device) },
				    room);
}

double dashboard_times(struct canvas *c, const struct profile *p, double width)
{
	int size[DASHBOARD_SIZES],
		n = dashboard_sizes(p, size),
		shown = p->devices < DASHBOARD_DEVICES ? p->devices : DASHBOARD_DEVICES;
	double left = 58, right = width - 128, height = 290, lo = INFINITY, hi = 0;
	struct end end[DASHBOARD_DEVICES];
	for (int i = 0; i < shown; i++)
		for (int k = 0; k < n; k++) {
			lo = fmin(lo, dashboard_layer_ms(&p->device[i], size[k]));
			hi = fmax(hi, dashboard_layer_ms(&p->device[i], size[k]));
		}
	struct axis a = { .log = lo > 0 && hi / lo > 12 };
	a.lo = a.log ? floor(log10(lo) * 3) / 3 : 0;
	a.hi = a.log ? log10(hi * 1.1) : hi > 0 ? hi * 1.06 : 1;
	time_grid(c, &a, left, right, height);
	canvas_write(c, a.log ? "log. ms" : "ms", 0, height + 26, small_style);
	double step = n > 1 ? (right - left - 48) / (n - 1) : 0;
	for (int k = 0; k < n; k++) {
		char s[16];
		snprintf(s, sizeof s, "%d", size[k]);
		canvas_write(c, s, left + 24 + k * step, height + 26, aligned(small_style, 0.5));
	}
	for (int i = 0; i < shown; i++) {
		double x[DASHBOARD_SIZES], y[DASHBOARD_SIZES];
		for (int k = 0; k < n; k++) {
			x[k] = left + 24 + k * step;
			y[k] = at(&a,
				  fmax(dashboard_layer_ms(&p->device[i], size[k]), a.log ? lo : 0),
				  height);
		}
		if (n > 1)
			canvas_line(c, x, y, (size_t)n, 2.5, device_colour(i));
		for (int k = 0; k < n; k++)
			canvas_dot(c, x[k], y[k], 4, device_colour(i));
		end[i] = (struct end){ i, y[n - 1] };
	}
	time_names(c, p, end, shown, right + 8, width - right - 8, height);
	canvas_write(c, "sequences in a microbatch", (left + right) / 2, height + 50,
		     aligned(small_style, 0.5));
	return height + 56;
}

/* ---- memory ---- */

/* The number of layers that fit, with one microbatch of one sequence in flight. */
static int layers_that_fit(const struct profile *p, int i)
{
	const struct profile_device *d = &p->device[i];
	double left = profile_limit_gib(p, i, -1) - d->fixed_gib - curve_at(&d->activation_gib, 1);
	double each = p->layer_gib + p->layer_state_gib + curve_at(&d->kept_gib, 1);
	double n = each > 0 ? floor(left / each + 1e-9) : p->layers;
	return n < 0 ? 0 : n > p->layers ? p->layers : (int)n;
}

double dashboard_memory(struct canvas *c, const struct profile *p, double width)
{
	double top = 0, y = 56;
	char s[200];
	static const struct {
		const char *name;
		enum canvas_role role;
		double opacity;
	} part[] = { { "others", CANVAS_INK, 0.75 },
		     { "fixed", CANVAS_MUTED, 0.7 },
		     { "layers (in the device's colour)", CANVAS_FIRST_SERIES, 1 },
		     { "reserve", CANVAS_MUTED, 0.35 } };
	double x = 0;
	for (int k = 0; k < 4; k++) {
		canvas_rect(c, x, -4, 14, 14, 4, part[k].role, part[k].opacity);
		canvas_write(c, part[k].name, x + 21, 8, small_style);
		x += 21 + canvas_width(part[k].name, small_style) + 24;
	}
	snprintf(s, sizeof s, "a layer: %.3g + %.2g GiB of training state", p->layer_gib,
		 p->layer_state_gib);
	canvas_write(c, s, 0, 32, small_style);
	for (int i = 0; i < p->devices; i++)
		top = fmax(top, p->device[i].memory_gib);
	for (int i = 0; i < p->devices && i < DASHBOARD_DEVICES; i++, y += 46) {
		const struct profile_device *d = &p->device[i];
		int n = layers_that_fit(p, i);
		double each = p->layer_gib + p->layer_state_gib + curve_at(&d->kept_gib, 1),
		       scale = top > 0 ? width / top : 0;
		const double gib[] = { d->used_gib, d->fixed_gib, n * each };
		snprintf(s, sizeof s,
			 n == p->layers ? "%.3g GiB: all %d layers" : "%.3g GiB: %d of %d layers",
			 d->memory_gib, n, p->layers);
		device_head(c, p, i, y + 14, width - canvas_width(s, value_style));
		canvas_write(c, s, width, y + 14, aligned(value_style, 1));
		canvas_rect(c, 0, y + 22, d->memory_gib * scale, 12, 3, CANVAS_GRID, 1);
		double from = 0;
		for (int k = 0; k < 3; k++) {
			double w = fmin(gib[k], d->memory_gib - from) * scale;
			canvas_rect(c, from * scale, y + 22, w, 12, 3,
				    k == 2 ? device_colour(i) : part[k].role, part[k].opacity);
			from += gib[k];
		}
		double reserve = fmin(dashboard_reserve(d), d->memory_gib);
		canvas_rect(c, (d->memory_gib - reserve) * scale, y + 22, reserve * scale, 12, 3,
			    part[3].role, part[3].opacity);
	}
	return more(c, p->devices, DASHBOARD_DEVICES, "devices", y);
}

/* ---- links ---- */

/* Whether the profile has a link inside a host, between two of its devices. */
static bool has_link(const struct profile *p, int host)
{
	for (int i = 0; i < p->links; i++)
		if (p->link[i].from == host && p->link[i].to == host)
			return true;
	return false;
}

static void link_cell(struct canvas *c, const struct profile *p, int from, int to, double lo,
		      double hi, double x, double y, double w, double h)
{
	if (from == to && !has_link(p, from)) { /* what planning assumes inside one host */
		canvas_rect(c, x, y, w - 4, h - 4, 6, CANVAS_MUTED, 0.08);
		canvas_write(c, "one host", x + w / 2 - 2, y + h / 2 + 4,
			     (struct canvas_text){ .size = fmin(14, w / 6.2),
						   .align = 0.5,
						   .role = CANVAS_MUTED });
		return;
	}
	double v = p->bandwidth[from * p->hosts + to], ms = p->latency_ms[from * p->hosts + to];
	double share = hi > lo ? (log(v) - log(lo)) / (log(hi) - log(lo)) : 1;
	char s[32];
	canvas_rect(c, x, y, w - 4, h - 4, 6, CANVAS_FIRST_SERIES,
		    0.10 + 0.38 * fmin(fmax(share, 0), 1));
	snprintf(s, sizeof s,
		 v >= 1      ? "%.1f GB/s"
		 : v >= 0.01 ? "%.0f MB/s"
			     : "%.1f MB/s",
		 v >= 1 ? v : v * 1e3);
	double size = fmin(15, w / 6.2);
	canvas_write(c, s, x + w / 2 - 2, y + h / 2 - 3,
		     (struct canvas_text){
			     .size = size, .align = 0.5, .bold = true, .role = CANVAS_INK });
	snprintf(s, sizeof s, ms < 0.1 ? "%.0f µs" : "%.2g ms", ms < 0.1 ? ms * 1e3 : ms);
	canvas_write(
		c, s, x + w / 2 - 2, y + h / 2 + size,
		(struct canvas_text){ .size = size * 0.88, .align = 0.5, .role = CANVAS_MUTED });
}

double dashboard_links(struct canvas *c, const struct profile *p, double width)
{
	int n = p->hosts < DASHBOARD_HOSTS ? p->hosts : DASHBOARD_HOSTS;
	double left = 130, w = fmin(170, (width - left) / n), h = fmin(58, fmax(44, w * 0.62)),
	       lo = INFINITY, hi = 0;
	for (int i = 0; i < n * n; i++) {
		double v = p->bandwidth[i / n * p->hosts + i % n];
		lo = v > 0 ? fmin(lo, v) : lo;
		hi = fmax(hi, v);
	}
	for (int i = 0; i < n; i++) {
		canvas_write_within(c, p->host[i].name, left + i * w + w / 2 - 2, 10,
				    aligned(small_style, 0.5), w - 6);
		canvas_write_within(
			c, p->host[i].name, left - 14, 24 + i * h + h / 2 + 3,
			(struct canvas_text){
				.size = 14, .align = 1, .bold = true, .role = CANVAS_INK },
			left - 14);
		for (int k = 0; k < n; k++)
			link_cell(c, p, i, k, lo, hi, left + k * w, 24 + i * h, w, h);
	}
	return more(c, p->hosts, n, "hosts", 24 + n * h);
}
