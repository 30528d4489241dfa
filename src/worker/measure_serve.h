/* SPDX-License-Identifier: Apache-2.0 */
/* measure_serve.h - a worker's answer to PROFILE. */
#ifndef HS_WORKER_MEASURE_SERVE_H
#define HS_WORKER_MEASURE_SERVE_H

#include <stddef.h>

struct err;

/* Takes and returns payloads. An earlier measurement of the same device, program and job is taken
 * from the cache (`cache_dir` NULL: the default; measure_serve.c lists what must be the same). */
int measure_serve(const char *device, const char *cache_dir, const void *p, size_t n, void *out,
		  size_t cap, size_t *n_p, struct err *e);

#endif
