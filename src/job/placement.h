/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - the part of a plan that is executed: which layers, schedule and recomputation on
 * which stage. A plan (plan/plan.h) has the predictions too. */
#ifndef HS_JOB_PLACEMENT_H
#define HS_JOB_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct job;
struct model_config;

enum { CHUNKS_MOST = 4096 };

struct placement {
	int stages, chunks;
	/* chunk c of stage s holds [first[v], first[v+1]), v = c * stages + s */
	int64_t first[CHUNKS_MOST + 1];
	const char **device; /* [stages] "cpu"; borrowed */
	const char *schedule;
	const bool *recompute; /* [stages] besides what the job asks for; NULL: nowhere. Borrowed */
};

/* The number of chunk `chunk` of a stage in the whole pipeline (sched/sched.h); and which stage
 * holds a layer, -1 none. `first` as in struct placement. */
int chunk_number(int stages, int stage, int chunk);
int chunk_stage_of_layer(int stages, int chunks, const int64_t *first, int64_t layer);

/* The one-stage placement. */
void placement_single(const struct model_config *c, const char **device, struct placement *p_p);
/* DIR/plan.json: input for `heteroshard plan --plan` and for later runs. */
int placement_write(const struct job *j, const struct placement *p, const char *dir, struct err *e);

#endif
