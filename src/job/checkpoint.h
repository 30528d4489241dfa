/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - the state after a step, on disk: OUTPUT/checkpoints/step-000020/.
 *
 *   adapter_config.json, adapter_model.safetensors   the adapter as PEFT stores it, or
 *   model.safetensors, config.json, tokenizer...      all parameters, after full-parameter training
 *   optimizer.safetensors NAME.exp_avg, NAME.exp_avg_sq or NAME.momentum_buffer, float32
 *   trainer_state.json    step, data cursor, counters, rules, the rows of each pass where they
 *                         differ, the configuration; a hash of the base model, of every other file,
 *                         and of itself
 *
 * Keyed by parameter name, so any plan can load it. The folder is written beside, synced, renamed:
 * it is whole or not there. The values are written before the optimizer's state: on a full disk
 * they are the first to be there. */
#ifndef HS_JOB_CHECKPOINT_H
#define HS_JOB_CHECKPOINT_H

#include "job/job.h"
#include "optim/loss_scale.h"
#include "sched/sum.h"

enum { CHECKPOINT_VERSION = 2 };

/* The numbers of the rules that a run follows; a run keeps the rules with which it began.
 *   dropout  (and other noise) 1: keyed by (seed, step, microbatch, layer, site)
 *            2: by (seed, step, row in the global batch, offset in the row, layer, site), whatever
 *               the passes
 *            3: the same, and adapters drop nothing where preferences are learned
 *   reduce   1, 2: `fast`, `exact` of sched/sum.h
 *   lr       1: the curve's first step follows the warm-up's last, its last step has its end
 *            2: as lr_at() says in optim.h */
struct rules {
	int dropout, reduce, lr;
};
#define RULES_NOW ((struct rules){ .dropout = 3, .reduce = SUM_EXACT, .lr = 2 })

struct train_state {
	uint64_t step;         /* steps done, skipped ones included */
	uint64_t updates;      /* steps applied: Adam's t */
	uint64_t epoch, batch; /* the next global batch */
	uint64_t tokens;       /* ids that went through the model */
	uint64_t skipped;      /* steps that were not finite */
	/* of the last ones in a row, those that count towards max_nonfinite_steps */
	uint64_t nonfinite;
	struct loss_scale scale;
	struct rules rules;
	/* of the evaluations in training: the lowest loss, its step (0: there was none), and how
	 * many followed that were not lower */
	double best_loss;
	uint64_t best_step, evals_since_best;
	bool timed; /* saved because of save_minutes: the next checkpoint replaces it */
	/* the epoch (net/frame.h) in which it was computed, or read; in no checkpoint */
	uint64_t origin;
};

/* Writes the job's collected values and states into DIR/checkpoints. Files in which they were
 * collected (state_files.h) become the checkpoint's. *path_p: the folder, in `a`. */
int checkpoint_write(struct job *j, const struct train_state *s, const char *dir, struct arena *a,
		     const char **path_p, struct err *e);
/* Bytes that a checkpoint takes on disk, and the result of the run. */
uint64_t checkpoint_bytes(const struct job *j);
uint64_t checkpoint_result_bytes(const struct job *j);
/* Reads one into the job's values and states, and checks that it is complete and belongs to this
 * job: everything that would change the result (data, seed, batch sizes, adapter, base model) must
 * be unchanged, and the message names all differences. `allow_changes`: only settings without which
 * the state cannot be used must be unchanged. */
int checkpoint_read(struct job *j, const char *path, bool allow_changes, struct train_state *s_p,
		    struct err *e);

/* Only whether it belongs to this job, from its trainer_state.json, if that can be read; the job
 * then has its passes and dtype. */
int checkpoint_fits(struct job *j, const char *path, bool allow_changes, struct err *e);

/* The result of the run: the adapter, or the model, into `dir`. */
int checkpoint_export(struct job *j, const char *dir, struct err *e);

#endif
