/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - everything the coordinator knows before it starts: model, data, how long, what is
 * trained.
 *
 * Made from the configuration alone; starts nothing, writes nothing. */
#ifndef HS_TRAIN_JOB_H
#define HS_TRAIN_JOB_H

#include "data/batch.h"
#include "train/protocol.h"
#include "train/runtime.h"

struct err;

/* Where the layers go. One device: one stage with everything. */
struct placement {
	int stages, chunks;
	/* piece v = chunk * stages + stage holds [first[v], first[v+1]) */
	int64_t first[PIECES_MOST + 1];
	const char **device; /* [stages] "cpu"; borrowed */
	const char *schedule;
	const bool *recompute; /* [stages] besides what the job asks for; NULL: nowhere. Borrowed */
};

/* A parameter that is trained, as the coordinator keeps it for checkpoints. */
struct trained_param {
	char name[256];
	int ndim;
	int64_t dim[2];
	uint64_t count;
	float *value, *state[2]; /* allocated when first needed */
	uint64_t got[3];         /* numbers received of value and states in a gathering under way */
};

struct job {
	const struct config *cfg; /* borrowed */
	struct model_file *file;
	struct model_config model;
	struct tokenizer *tok;
	const struct chat_template *chat;
	struct dataset *data;
	struct batches *batches;
	struct stage_options opt; /* first and last are the placement's business */
	struct optim_config optim;
	const struct optimizer *optimizer;
	struct trained_param *param;
	size_t nparam;
	uint64_t trained_numbers; /* parameters that are trained */
	uint64_t total_steps, warmup_steps;
	uint64_t digest; /* of the data */
};

/* `act` is the dtype of activations, decided by the devices. */
int job_open(const struct config *c, enum dtype act, struct job *j_p, struct err *e);
void job_close(struct job *j);
struct trained_param *job_param(struct job *j, const char *name); /* NULL: not trained */
/* value and state[] of every parameter */
int job_alloc_state(struct job *j, struct err *e);

/* The one-stage placement. */
void placement_single(const struct model_config *c, const char **device, struct placement *p_p);
/* DIR/plan.json: what `heteroshard plan --plan` and a later run can take. */
int placement_write(const struct job *j, const struct placement *p, const char *dir, struct err *e);

/* The adapter's weights as PEFT wants them; points into the job's values. Allocated in `a`. */
int job_adapter(struct job *j, struct arena *a, struct peft_adapter *ad_p, struct err *e);

#endif
