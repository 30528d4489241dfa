/* SPDX-License-Identifier: Apache-2.0 */
/* lr.c - the registry of learning-rate curves, and the warm-up before all of them; the formulas are
 * in lr_<name>.c. */
#include "optim/optim.h"

#include "base/mem.h"

#include <string.h>

#define LR(name) extern const struct lr_curve lr_##name;
#include "optim/lr.def"
#undef LR

static const struct lr_curve *const curves[] = {
#define LR(name) &lr_##name,
#include "optim/lr.def"
#undef LR
};

const struct lr_curve *lr_curve_at(size_t i) { return i < ARRAY_LEN(curves) ? curves[i] : NULL; }

const struct lr_curve *lr_curve_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(curves); i++)
		if (!strcmp(curves[i]->name, name))
			return curves[i];
	return NULL;
}

double lr_at(const struct lr_curve *curve, int rule, double base, uint64_t s, uint64_t total,
	     uint64_t warmup, const struct lr_shape *shape)
{
	if (s <= warmup)
		return base * (double)s / (double)warmup;
	double steps = total > warmup ? (double)(total - warmup) : 1, at = (double)(s - warmup);
	at = at < steps ? at : steps;
	return base *
	       curve->share(rule == 1 ? at / (steps + curve->rule1_more) : (at - 1) / steps, shape);
}
