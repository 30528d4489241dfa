/* SPDX-License-Identifier: Apache-2.0 */
/* plot_axis.h - the pure part of a plot: which ticks an axis gets, and how they are written. */
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

#endif
