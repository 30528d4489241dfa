/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - the part of a plan that is executed: which layers, schedule, recomputation and
 * members for which stage. A plan (plan/plan.h) has the predictions too.
 *
 * A row is a member of the pipeline: rows are numbered by stage and then by place in the group. */
#ifndef HS_JOB_PLACEMENT_H
#define HS_JOB_PLACEMENT_H

#include "base/dtype.h"
#include "model/deal.h"
#include "sched/sum.h"
#include "tensor/state_cut.h"

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
	/* [stages] how many members hold each stage; NULL: one each. Borrowed, as all that
	 * follows */
	const int *members;
	const int *share; /* [rows] of the group's microbatches (sched_deal); NULL: equal ones */
	/* [rows] millionths of the group's training state, in sum STATE_WHOLE; NULL: all each */
	const int *state_share;
	enum sharding sharding; /* of what; without state_share SHARD_NONE */
	unsigned offload;       /* bits of enum offload */
	uint64_t expert_cache;  /* bytes; 0: two layers */
	const char **device;    /* [rows] "cpu" */
	const char **id;        /* [rows] of the worker; NULL: the device's name stands for it */
	const char *schedule;
	enum sum_order reduce_order; /* of gradients */
	const char *reducer;         /* how groups add up (sched/reduce.h) */
	enum dtype reduce_dtype;     /* of what they send for it */
	int parts;                   /* of a chunk's gradients (sched/sched.h); 0 means 1 */
	const bool *recompute;       /* [stages] besides what the job asks for; NULL: nowhere */
	/* [stages] how many of `members`, the first ones, have more than experts; NULL: all */
	const int *homes;
	struct expert_deal deal; /* among the members of a stage */
};

int placement_rows(const struct placement *p);
/* The first row of a stage; of stage `stages`: the number of rows. */
int placement_row(const struct placement *p, int stage);
int placement_stage_of(const struct placement *p, int row);
bool placement_has_only_experts(const struct placement *p, int row);

/* The number of chunk `chunk` of a stage in the whole pipeline (sched/sched.h). */
int chunk_number(int stages, int stage, int chunk);
/* Which stage holds a layer, with `first` as in struct placement: the first stage holds what is
 * before layer 0, the last one what is behind the last layer. */
int chunk_stage_of_layer(int stages, int chunks, const int64_t *first, int64_t layer);
/* Which stage holds the parameter of this name; -1: it is of a layer that the model has not. */
int chunk_stage_of_param(int stages, int chunks, const int64_t *first, const char *name);

/* The one-stage placement. */
void placement_single(const struct model_config *c, const char **device, struct placement *p_p);
/* DIR/plan.json: input for `heteroshard plan --plan` and for later runs. */
int placement_write(const struct job *j, const struct placement *p, const char *dir, struct err *e);

#endif
