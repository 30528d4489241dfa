/* SPDX-License-Identifier: Apache-2.0 */
/* sigmoid.h - for the rows of prefer.def. */
#ifndef HS_PREFER_SIGMOID_H
#define HS_PREFER_SIGMOID_H

#include <math.h>

static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
/* log of it, exact for large |x| too */
static inline double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

/* -(1 - s) log_sigmoid(x) - s log_sigmoid(-x), and its derivative */
static inline double smooth_loss(double x, double s, double *dx_p)
{
	*dx_p = s * sigmoid(x) - (1 - s) * sigmoid(-x);
	return -(1 - s) * log_sigmoid(x) - s * log_sigmoid(-x);
}

#endif
