/* SPDX-License-Identifier: Apache-2.0 */
/* measure_wire.h - the request to measure a device (PROFILE) and its result (PROFILED) as the
 * payload of a frame. */
#ifndef HS_PROTO_MEASURE_WIRE_H
#define HS_PROTO_MEASURE_WIRE_H

#include "proto/protocol.h"
#include "runtime/measure.h"

/* PROFILE and PROFILED; everything is checked on reading. */
int measure_request_write(const struct measure_request *q, const char *config_json, struct buf *out,
			  struct err *e);
int measure_request_read(const void *p, size_t n, struct measure_request *q_p, struct err *e);
int measure_result_write(const struct measure_result *r, void *out, size_t cap, size_t *n_p,
			 struct err *e);
int measure_result_read(const void *p, size_t n, struct measure_result *r_p, struct err *e);

#endif
