/* SPDX-License-Identifier: Apache-2.0 */
/* plot_axis.h - the pure part of a plot: which ticks an axis gets, how they are written, how a
 * curve is smoothed. */
#ifndef HS_REPORT_PLOT_AXIS_H
#define HS_REPORT_PLOT_AXIS_H

#include <stddef.h>

/* Ticks at first, first + step, ... (count of them), all inside [lo, hi]; digits behind the
 * decimal point. */
struct plot_ticks {
	double first, step;
	int count, digits;
};

/* At most `most` ticks at multiples of 1, 2 or 5 times a power of ten; `least_step` 1 for whole
 * numbers, else 0. */
struct plot_ticks plot_ticks(double lo, double hi, int most, double least_step);
/* "0.25", "2e-4", "1,200" */
void plot_tick_text(double v, const struct plot_ticks *t, char *s, size_t cap);

/* Runs of fewer steps are shown as they are. */
enum { PLOT_SMOOTH_FROM = 8 };
/* The mean of the values around each step, weighted by keep^distance: at the ends it is the mean of
 * one side, never the last value alone. Values that are not finite count nothing. out has room for
 * 2n: the second half is scratch. */
void plot_smooth(const double *y, size_t n, double *out);

#endif
