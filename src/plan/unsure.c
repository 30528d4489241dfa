/* SPDX-License-Identifier: Apache-2.0 */
/* unsure.c - see unsure.h. */
#include "plan/unsure.h"

#include "plan/profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RUNS_LEAST = 3 };
static const double drift_most = 0.1, spread_most = 0.25, residual_most = 0.1,
		    equals_differ = 1.25; /* times */

static const struct profile_sample *sample_at(const struct profile_device *d, int m)
{
	for (int i = 0; i < d->measured.samples; i++)
		if (d->measured.sample[i].m == m)
			return &d->measured.sample[i];
	return d->measured.samples ? &d->measured.sample[0] : NULL;
}

static double layer_ms(const struct profile_device *d, int m)
{
	return curve_at(&d->forward_ms, m) + curve_at(&d->backward_ms, m);
}

static void add(char *why, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *why, size_t cap, const char *fmt, ...)
{
	size_t n = strlen(why);
	va_list ap;
	va_start(ap, fmt);
	if (n)
		n += (size_t)snprintf(why + n, cap - n, "; ");
	if (n < cap)
		vsnprintf(why + n, cap - n, fmt, ap);
	va_end(ap);
}

static bool equal(const struct profile_device *a, const struct profile_device *b)
{
	return !strcmp(a->kind, b->kind) && a->measured.units == b->measured.units &&
	       a->measured.threads == b->measured.threads;
}

bool profile_unsure(const struct profile *p, int device, int m, const int *machine, char *why,
		    size_t cap)
{
	const struct profile_device *d = &p->device[device];
	const struct profile_sample *s = sample_at(d, m);
	double ms = layer_ms(d, m);
	why[0] = 0;
	if (s && fabs(s->drift) > drift_most)
		add(why, cap, "it changed by %+.0f %% during the measurement",
		    100 * (1 / (1 + s->drift) - 1));
	if (s && s->spread > spread_most)
		add(why, cap, "the runs differ by %.0f %%", 100 * s->spread);
	if (s && s->runs < RUNS_LEAST)
		add(why, cap, "so slow that there was time for %d run%s only", s->runs,
		    s->runs == 1 ? "" : "s");
	if (fabs(d->measured.residual) > residual_most)
		add(why, cap, "a small model took %.2f times the sum of its parts",
		    1 + d->measured.residual);
	for (int i = 0; s && i < p->devices; i++) {
		double other = layer_ms(&p->device[i], m);
		if (i == device || machine[i] != machine[device] || !equal(&p->device[i], d) ||
		    fmax(ms, other) <= equals_differ * fmin(ms, other))
			continue;
		add(why, cap, "'%s' is an equal device of this machine and was %.1f times as %s",
		    p->device[i].id, fmax(ms, other) / fmin(ms, other),
		    other < ms ? "fast" : "slow");
		break;
	}
	return why[0] != 0;
}
