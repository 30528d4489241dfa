/* SPDX-License-Identifier: Apache-2.0 */
/* measure_experts.h - how long the experts of a layer take on a device: for plans in which they are
 * on other devices than the rest of it. */
#ifndef HS_RUNTIME_MEASURE_EXPERTS_H
#define HS_RUNTIME_MEASURE_EXPERTS_H

#include "model/stage.h"

struct err;

/* Seconds of the rows of n tokens, which spread evenly over the experts of layer `layer`; their
 * numbers are those of x (N,C). */
int measure_experts(struct stage *s, int64_t layer, int64_t n, struct dev_ref x, double *forward_p,
		    double *backward_p, struct err *e);

#endif
