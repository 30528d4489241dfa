/* SPDX-License-Identifier: Apache-2.0 */
/* join.h - joins the workers of a job: over the network as the configuration says, or as threads of
 * this process.
 *
 * Training and profiling both begin with it. */
#ifndef HS_COORD_JOIN_H
#define HS_COORD_JOIN_H

#include "coord/session.h"

struct err;

struct join_options {
	char *const *program;              /* argv that starts a worker process, ended by NULL */
	const volatile sig_atomic_t *stop; /* MAY be NULL */
	/* Started by mpirun: these are the workers (ranks.h); its net becomes the session's.
	 * NULL: not so. */
	const struct ranks *ranks;
	/* Called when all have joined, before the job's dtype is decided; MAY be NULL. `run`,
	 * `term`: as in session_options */
	int (*met)(void *ctx, struct session *s, struct err *e);
	void *ctx;
	uint64_t run;
	uint32_t term;
};

/* Whether the configuration names other workers than this process's own device. */
bool join_is_cluster(const struct config *c);
/* The device that the configuration names ("auto" chooses), and the dtype of activations there. The
 * device is opened for that and closed again. */
int join_device(const struct config *c, char spec[DEV_SPEC], enum dtype *act_p, struct err *e);
/* The workers of the configuration; decides the job's dtype, unless it comes from a checkpoint:
 * bfloat16 where every device has it natively, else float16 where every device does, else float32.
 * The seats are allocated in `a`. */
int join_cluster(struct job *job, const struct join_options *o, struct arena *a,
		 struct seat_spec **seat_p, struct session **s_p, struct err *e);
/* A thread for each device. `window`: of links towards it (net.h); 0: the default. */
int join_threads(struct job *job, const char *const *device, int n, uint64_t window,
		 struct arena *a, struct seat_spec **seat_p, struct session **s_p, struct err *e);

#endif
