/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.h - makes the profile for a planner: the workers of a session measure before any of them
 * has a plan.
 *
 * The coordinator asks every worker at once (PROFILE) how long its device takes for a layer, the
 * front and the end of the model at several microbatch sizes (measure.h), at the job's dtype,
 * adapter and length; then every pair of machines for the links between them (PROBE), one pair
 * after the other. The result is a struct profile of the workers that are there, in the
 * order of their numbers. */
#ifndef HS_SURVEY_PROFILER_H
#define HS_SURVEY_PROFILER_H

#include "plan/profile.h"
#include "coord/join.h"

struct err;

struct profiler_options {
	/* measure again what the cache has */
	bool refresh;
	/* false: devices only */
	bool links;
	void (*part)(void *ctx, const char *what, uint64_t done, uint64_t all); /* MAY be NULL */
	void *ctx;
};

/* `act` of the job's options is decided. The profile is finished (profile_finish); release it. */
int profiler_run(struct session *s, const struct profiler_options *o, struct profile *p_p,
		 struct err *e);
/* From a configuration alone: opens the job, joins its workers, measures, ends the session. */
int profiler_config(const struct config *c, const struct join_options *g,
		    const struct profiler_options *o, struct profile *p_p, struct err *e);
/* Whether a profile is of this job: model, layers, what is trained, dtype (`act` of the job's
 * options is decided), length, version of the program. Facts that a profile does not state are not
 * checked. ERR_USAGE names both values. */
int profile_check_job(const struct profile *p, const char *path, const struct job *j,
		      struct err *e);

#endif
