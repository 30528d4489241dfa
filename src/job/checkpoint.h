/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - a step kept on disk: OUTPUT/checkpoints/step-000020/.
 *
 *   adapter_config.json, adapter_model.safetensors   the adapter as PEFT stores it, or
 *   model.safetensors, config.json                   all parameters, after full-parameter training
 *   optimizer.safetensors NAME.exp_avg, NAME.exp_avg_sq or NAME.momentum_buffer, float32
 *   trainer_state.json                               step, data cursor, counters, the configuration
 *
 * Keyed by parameter name, so any plan can load it. The folder is written beside, synced, renamed:
 * it is whole or not there. */
#ifndef HS_JOB_CHECKPOINT_H
#define HS_JOB_CHECKPOINT_H

#include "job/job.h"
#include "job/loss_scale.h"

struct train_state {
	uint64_t step;         /* steps done, skipped ones included */
	uint64_t updates;      /* steps applied: Adam's t */
	uint64_t epoch, batch; /* the next global batch */
	uint64_t tokens;       /* ids that went through the model */
	uint64_t skipped;      /* steps that were not finite */
	struct loss_scale scale;
};

/* Writes the job's gathered values and states. *path_p: the folder, in `a`. */
int checkpoint_write(struct job *j, const struct train_state *s, struct arena *a,
		     const char **path_p, struct err *e);
/* Removes the oldest so that `keep` remain; 0 keeps all. */
int checkpoint_prune(const char *output_dir, int64_t keep, struct err *e);
/* The newest complete checkpoint of a run's folder, in `a`; NULL when there is none. */
int checkpoint_latest(const char *output_dir, struct arena *a, const char **path_p, struct err *e);
/* Reads one into the job's values and states and checks that it belongs to this job: what would
 * change the result (data, seed, batch sizes, adapter) must be as it was, and the message names
 * what is not. */
int checkpoint_read(struct job *j, const char *path, struct train_state *s_p, struct err *e);

/* The result of the run: the adapter, or the model, into output_dir itself. */
int checkpoint_export(struct job *j, const char *dir, struct err *e);

/* Whether a folder already holds a run of ours. */
bool run_exists(const char *output_dir);
/* Removes what a run of ours has written there, and nothing else. */
int run_remove(const char *output_dir, struct err *e);

#endif
