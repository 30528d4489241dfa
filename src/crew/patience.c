/* SPDX-License-Identifier: Apache-2.0 */
/* patience.c - see patience.h. */
#include "crew/patience.h"

#include <math.h>

static const double stall_least = 30;  /* seconds, when auto */
static const double stall_first = 600; /* when auto, in the first step: kernels are compiled */
static const double silent_limit = 1800;
static const double times_longest = 10;

struct patience patience_of(double configured, double longest, bool first)
{
	double stall = fmax(times_longest * longest, first ? stall_first : stall_least);
	return (struct patience){ .stall = configured > 0 ? configured : stall,
				  .silent = fmax(silent_limit, configured) };
}

struct patience patience_changed(double configured, double longest, double first, bool strange)
{
	return patience_of(configured, fmax(longest, first), strange || !(first > 0));
}

double patience_progress(double configured)
{
	return fmax((configured > 0 ? configured : stall_least) / 10, 0.05);
}
