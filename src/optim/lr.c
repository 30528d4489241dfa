/* SPDX-License-Identifier: Apache-2.0 */
/* lr.c - learning-rate curves as pure functions; the formulas are in optim.h. */
#include "optim/optim.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Each gets the steps behind the warm-up (1..steps) and returns the share of the base rate. */
static double lr_cosine(double s, double steps, double least)
{
	return least + (1 - least) * 0.5 * (1 + cos(M_PI * s / steps));
}

static double lr_linear(double s, double steps, double least)
{
	(void)least;
	return (steps - s + 1) / (steps + 1);
}

static double lr_constant(double s, double steps, double least)
{
	(void)s;
	(void)steps;
	(void)least;
	return 1;
}

static const struct {
	const char *name;
	double (*share)(double s, double steps, double least);
} curves[] = {
#define LR(name) { #name, lr_##name },
#include "optim/lr.def"
#undef LR
};

double lr_at(const char *curve, double base, uint64_t s, uint64_t total, uint64_t warmup,
	     double min_ratio)
{
	for (size_t i = 0; i < ARRAY_LEN(curves); i++) {
		if (strcmp(curves[i].name, curve))
			continue;
		if (s <= warmup)
			return base * (double)s / (double)warmup;
		double steps = total > warmup ? (double)(total - warmup) : 1,
		       at = (double)(s - warmup);
		return base * curves[i].share(at < steps ? at : steps, steps, min_ratio);
	}
	return -1;
}
