/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - what the coordinator knows before it starts: model, data, length of the run,
 * trained parameters.
 *
 * Made from the configuration alone; starts nothing, writes nothing. */
#ifndef HS_JOB_JOB_H
#define HS_JOB_JOB_H

#include "base/ranges.h"
#include "data/batch.h"
#include "job/base_hash.h"
#include "config/config.h"
#include "optim/optim.h"
#include "runtime/loftq.h"
#include "runtime/runtime.h"

struct err;

/* A parameter that is trained, as the coordinator keeps it for checkpoints. */
struct trained_param {
	char name[256];
	int ndim;
	int64_t dim[2];
	uint64_t count;
	int states;
	struct optim_state kind[PARAM_STATES]; /* [states] */
	/* NULL before there is a state; where it is in files (state_files.h) only to be read */
	float *value;
	void *state[PARAM_STATES]; /* the same; numbers as in kind[] */
	/* numbers of value and states received so far while state is pulled */
	struct ranges got[1 + PARAM_STATES];
};

struct st_file;

struct job {
	const struct config *cfg; /* borrowed */
	struct model_file *file;
	struct model_config model;
	struct tokenizer *tok;
	const struct chat_template *chat;
	struct dataset *data;             /* NULL: samples */
	const struct sample_set *samples; /* of a model of one's own; borrowed */
	struct batches *batches;
	/* [npass] rows of a step's passes; NULL: gradient_accumulation_steps passes of
	 * micro_batch_size. Set by job_set_passes() */
	int *pass;
	size_t npass;
	struct stage_options opt; /* first and last are set by the placement */
	bool resumed_act;         /* opt.act is the checkpoint's, whatever devices prefer */
	struct optim_config optim;
	const struct optimizer *optimizer;
	const struct lr_curve *curve;
	struct lr_shape lr_shape;
	struct trained_param *param;
	size_t nparam;
	/* The files that the arrays are mappings of, values and states (state_files.h); NULL: the
	 * arrays are in memory. incoming: paths under which they can be taken. */
	struct st_file *mapped[2];
	char *incoming[2];
	uint64_t trained_numbers; /* parameters that are trained */
	uint64_t total_steps, warmup_steps;
	uint64_t save_every, eval_every;   /* steps; 0: never */
	uint64_t digest;                   /* of the data: job_same_data() */
	char base_hash[BASE_HASH];         /* of the base model; "" before job_hash_base() */
	const volatile sig_atomic_t *stop; /* ends job_begin(); MAY be NULL */
};

/* `act` is the dtype of activations, decided by the devices. `samples`: of a model of one's own,
 * else NULL. */
int job_open(const struct config *c, enum dtype act, const struct sample_set *samples,
	     struct job *j_p, struct err *e);
void job_close(struct job *j);
/* Whether a checkpoint with this digest is of the same data. Of those of versions before, it does
 * not say where the data begin that are held out. */
bool job_same_data(const struct job *j, const char *digest);
/* The run's pass boundaries: their sum must be that of the configuration. Lists of passes that all
 * have micro_batch_size rows are the same as none. */
int job_set_passes(struct job *j, const int *pass, size_t n, struct err *e);
/* All steps of the run, and with them those of the warm-up. */
static inline void job_set_steps(struct job *j, uint64_t total)
{
	const struct config *c = j->cfg;
	j->total_steps = total;
	j->warmup_steps = c->warmup_steps > 0 ? (uint64_t)c->warmup_steps
					      : (uint64_t)(c->warmup_ratio * (double)total);
}
/* Passes of a whole step. */
static inline int job_passes(const struct job *j)
{
	return j->pass ? (int)j->npass : (int)j->cfg->gradient_accumulation_steps;
}
/* For messages: "[13, 6, 34, 5]", or "8 microbatches of 2". */
void job_passes_text(const struct job *j, char *out, size_t cap);
struct trained_param *job_param(struct job *j, const char *name); /* NULL: not trained */
/* What is kept of a parameter under the name `what`: "value" or one of its optimizer's states. Sets
 * the size and count of its numbers, and its place in got[], which is also that of the array;
 * false: there is no such. */
bool job_kept(const struct trained_param *p, const char *what, struct optim_state *kind_p,
	      int *got_p);
static inline void *job_array(const struct trained_param *p, int index)
{
	return index ? p->state[index - 1] : p->value;
}
/* Of what a worker keeps of the trained parameters (gradient, moments, master copy), the share that
 * is gradient. */
double job_gradient_share(const struct job *j);
/* value and state[] of every parameter, in memory; what was in files is gone. */
int job_alloc_state(struct job *j, struct err *e);
void job_drop_state(struct job *j); /* there is none */
/* Bytes of an array have been read: where it is in a file, they leave the memory. */
void job_drop_pages(const struct job *j, const void *p, uint64_t n);

/* Sets base_hash, once: a pass over the weights unless it is known (base_hash.h). */
int job_hash_base(struct job *j, struct err *e);

/* Whether the adapters begin with values of the coordinator's: those of lora_model_dir, which must
 * be of this job's shape, LoftQ's or PiSSA's. Then it takes them; the optimizer's states are zero.
 */
bool job_begins_with(const struct config *c);
int job_begin(struct job *j, struct err *e);

/* The adapter's weights in the form of PEFT; points into the job's values. Allocated in `a`. */
int job_adapter(struct job *j, struct arena *a, struct peft_adapter *ad_p, struct err *e);

#endif
