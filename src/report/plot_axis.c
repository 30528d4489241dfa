/* SPDX-License-Identifier: Apache-2.0 */
/* plot_axis.c - see plot_axis.h. */
#include "report/plot_axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct plot_ticks plot_ticks(double lo, double hi, int most, double least_step)
{
	struct plot_ticks t = { lo, 1, 1, 0 };
	double span = hi - lo;
	if (!(span > 0) || !isfinite(span))
		return t;
	double power = pow(10, floor(log10(span / most)));
	static const double nice[] = { 1, 2, 5, 10 };
	for (int i = 0; i < 4; i++) {
		t.step = nice[i] * power;
		if (span / t.step <= most && t.step >= least_step)
			break;
	}
	if (t.step < least_step)
		t.step = least_step;
	t.first = ceil(lo / t.step - 1e-9) * t.step;
	t.count = (int)floor((hi - t.first) / t.step + 1e-9) + 1;
	double d = -floor(log10(t.step) + 1e-9);
	t.digits = d > 0 ? (int)d : 0;
	return t;
}

/* 1200000 as 1,200,000 */
static void grouped_text(long long v, char *s, size_t cap)
{
	char d[32];
	int n = snprintf(d, sizeof d, "%lld", v < 0 ? -v : v);
	size_t at = 0;
	if (v < 0 && at + 1 < cap)
		s[at++] = '-';
	for (int i = 0; i < n && at + 2 < cap; i++) {
		if (i && (n - i) % 3 == 0)
			s[at++] = ',';
		s[at++] = d[i];
	}
	s[at] = 0;
}

void plot_tick_text(double v, const struct plot_ticks *t, char *s, size_t cap)
{
	if (fabs(v) < t->step * 1e-6)
		snprintf(s, cap, "0");
	else if (t->digits > 3) {
		/* 1.5e-4 rather than 0.00015; no trailing zeros: 2e-4 */
		int power = (int)floor(log10(fabs(v)) + 1e-9);
		double m = v / pow(10, power);
		snprintf(s, cap, fabs(m - round(m)) < 1e-6 ? "%.0fe%d" : "%.1fe%d", m, power);
	} else if (t->digits == 0)
		grouped_text(llround(v), s, cap);
	else
		snprintf(s, cap, "%.*f", t->digits, v);
}

void plot_smooth(const double *y, size_t n, double *out)
{
	const double keep = exp(-1.0 / fmax(2, (double)n / 60));
	double *weight = out + n;
	for (int back = 0; back < 2; back++) {
		double sum = 0, all = 0;
		for (size_t k = 0; k < n; k++) {
			size_t i = back ? n - 1 - k : k;
			const int here = isfinite(y[i]) != 0;
			/* On the way back the value itself has been counted already. */
			double sum_before = keep * sum, all_before = keep * all;
			sum = sum_before + (here ? y[i] : 0);
			all = all_before + here;
			out[i] = back ? out[i] + sum_before : sum;
			weight[i] = back ? weight[i] + all_before : all;
		}
	}
	for (size_t i = 0; i < n; i++)
		out[i] = weight[i] > 0 ? out[i] / weight[i] : NAN;
}
