/* SPDX-License-Identifier: Apache-2.0 */
/* measure_host.h - the host of a device: how fast its processor updates training state that is
 * offloaded to its memory; which cores this process has. */
#ifndef HS_RUNTIME_MEASURE_HOST_H
#define HS_RUNTIME_MEASURE_HOST_H

#include "runtime/measure.h"

/* Seconds of norm and update by the request's optimizer, for a GiB of what is trained: gradients,
 * moments, float32 copies. Measured on a matrix that no cache holds. */
int measure_host_update(const struct measure_request *q, double *seconds_p, struct err *e);
/* Seconds of a processor for a byte of a message between members of a group, at either end: with
 * messages as large as theirs are, which are in no cache when the next step reads them. */
int measure_messages(struct dev *dev, double *seconds_p, struct err *e);
/* "0-3,8"; "" where it is not known, or too long. */
void measure_cores(char *out, size_t cap);

#endif
