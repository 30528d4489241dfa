/* SPDX-License-Identifier: Apache-2.0 */
/* measure_serve.h - a worker's answer to PROFILE. */
#ifndef HS_WORKER_MEASURE_SERVE_H
#define HS_WORKER_MEASURE_SERVE_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/* How the answers reach the coordinator. */
struct measure_talk {
	void *ctx;
	int (*say)(void *ctx, const void *payload, size_t n, struct err *e); /* PROFILED */
	/* Takes the next PROFILE, which is empty. 1: it came; 0: not yet (not with `wait`). */
	int (*called)(void *ctx, bool wait, struct err *e);
	/* Whether the coordinator has closed the link, so that nobody waits. MAY be NULL */
	bool (*gone)(void *ctx);
};

/* Answers a request. An earlier measurement of the same device, program and job is taken from the
 * cache (`cache_dir` NULL: the default; measure_serve.c lists what must be the same). Where several
 * workers of the machine measure together and this one has to, there are three answers: an empty
 * one when it is ready; after the next PROFILE the result; and an empty one to the PROFILE after
 * that, until which it computes on. */
int measure_serve(const char *device, const char *cache_dir, const void *p, size_t n,
		  const struct measure_talk *talk, struct err *e);

#endif
