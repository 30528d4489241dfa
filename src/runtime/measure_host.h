/* SPDX-License-Identifier: Apache-2.0 */
/* measure_host.h - how fast the processor of a device's host updates training state that is
 * offloaded to its memory. */
#ifndef HS_RUNTIME_MEASURE_HOST_H
#define HS_RUNTIME_MEASURE_HOST_H

#include "runtime/measure.h"

/* Seconds of norm and update by the request's optimizer, for a GiB of what is trained: gradients,
 * moments, float32 copies. Measured on a matrix that no cache holds. */
int measure_host_update(const struct measure_request *q, double *seconds_p, struct err *e);

#endif
