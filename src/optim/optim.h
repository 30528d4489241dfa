/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - optimizers, the gradient norm and the learning-rate curve.
 *
 * All arithmetic is float32 on the device that holds the parameter, and so is all state unless a
 * row says otherwise. The values that every worker must apply alike (learning rate, gradient scale,
 * step number) are arguments: an optimizer decides nothing. */
#ifndef HS_OPTIM_OPTIM_H
#define HS_OPTIM_OPTIM_H

#include "tensor/param.h"

enum { OPTIM_NAME = 32 }; /* bytes of an optimizer's name with its NUL */

struct err;

struct optim_config {
	double beta1, beta2, epsilon; /* adamw */
	double momentum;              /* sgd */
	double weight_decay;          /* on matrices only: norms and biases never decay */
};

/* One update of what this member owns of a parameter. `step` counts from 1. The gradient is
 * multiplied by `scale` first (1 / trained tokens of the global batch, times the clip factor). */
struct optim_step {
	uint64_t step;
	float lr, scale;
};

/* Where the training state of a parameter (value, gradient, optimizer state) may be cut, so that
 * several members can each hold and update a part of it with the bits of one. */
enum optim_cut {
	CUT_BLOCK,  /* behind every STATE_BLOCK elements, counted from the parameter's start */
	CUT_MATRIX, /* between parameters only */
	CUT_NONE    /* not at all: the update of one parameter reads others */
};

/* What an optimizer keeps of a parameter: numbers, by name. Number k is about the elements
 * [k*per, (k+1)*per) of the parameter. `per` divides STATE_BLOCK where the optimizer's cut is
 * CUT_BLOCK, so elements [a, b) of a cut own numbers [a/per, ceil(b/per)). Where `per` is 0, a
 * number is not about a run of elements, and the state goes with the whole parameter. */
struct optim_state {
	const char *name; /* in checkpoints: "exp_avg", "exp_avg_sq" */
	enum dtype dtype;
	int64_t per;
	uint64_t count; /* numbers, above 0 */
};

/* Block sums of grad_sqnorm() on the host. */
struct norm_buffer {
	float *sum;
	size_t cap;
};

/* Memory that updates take for a moment; both are grown as needed. */
struct optim_work {
	struct dmem *scratch;
	struct norm_buffer *host;
};

struct optimizer {
	const char *name, *help;
	/* MAY: other names that configurations use, and configuration keys that not every optimizer
	 * reads; NULL-terminated */
	const char *const *aliases, *const *keys;
	/* MAY: of those keys that are not in the configuration, other values than the keys' own
	 * defaults; the last one has no key */
	const struct optim_default {
		const char *key;
		double value;
	} * defaults;
	enum optim_cut cut;
	/* The states of a parameter, param->state[0..n) in this order: fills in s and returns n.
	 * Depends on name and shape alone. */
	int (*states)(const struct optimizer *o, const char *name, int ndim, const int64_t *dim,
		      struct optim_state s[PARAM_STATES]);
	int (*update)(const struct optimizer *o, struct param *p, const struct optim_config *c,
		      const struct optim_step *s, const struct optim_work *w, struct err *e);
};

/* The rows, and behind them those that were added: i-th one (NULL past the end), by name (NULL: no
 * such row). */
const struct optimizer *optimizer_at(size_t i);
const struct optimizer *optimizer_find(const char *name);
/* Adds one, which must stay where it is. A name that is there already is an error. */
int optimizer_register(const struct optimizer *o, struct err *e);
/* The numbers [first, first + returned) of a state that are about what is owned of a parameter. */
uint64_t optim_owned(const struct param *p, const struct optim_state *s, uint64_t *first_p);
/* One float32 number an element. */
static inline struct optim_state optim_state_f32(const char *name, uint64_t elements)
{
	return (struct optim_state){ name, DT_F32, 1, elements };
}

/* Allocates and clears the state of what is owned of a trained parameter. */
int optim_init(const struct optimizer *o, struct param *p, const struct optim_config *c,
	       struct err *e);
/* Updates what is owned, casts it into the activation dtype, clears the whole gradient. */
int optim_update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		 const struct optim_step *s, const struct optim_work *w, struct err *e);
/* Clears the gradient without a step (a skipped step). */
int optim_zero_grad(struct param *p, struct err *e);

/* Updates that several optimizers make. AdamW with float32 moments in state[0] and state[1], the
 * bias corrections computed in double; and p -= lr * (scale * gradient + decay * p). */
int optim_adamw_step(struct param *p, const struct optim_config *c, const struct optim_step *s,
		     struct err *e);
int optim_plain_step(struct param *p, float lr, float decay, float scale, struct err *e);

/* Sums of squares of blocks of STATE_BLOCK elements of the gradient that are owned here, into
 * b->sum[0..*blocks_p). */
int grad_blocks(const struct param *p, struct dmem *scratch, struct norm_buffer *b,
		int64_t *blocks_p, struct err *e);
/* Their sum, added in double on the host, in their order; not finite when the gradient is not. */
int grad_sqnorm(const struct param *p, struct dmem *scratch, struct norm_buffer *b, double *sum_p,
		struct err *e);

/* What curves are told; each reads some of it. */
struct lr_shape {
	double cosine_min_lr_ratio; /* where the cosine ends */
	double min_lr_ratio;        /* where polynomial and warmup-stable-decay end */
	double num_cycles;          /* of cosine_with_restarts */
	double power;               /* of polynomial */
	double decay_ratio;         /* of warmup-stable-decay: the share of steps that decay */
};

/* A learning-rate curve: what follows the warm-up. One file lr_<name>.c with its formula. */
struct lr_curve {
	const char *name, *help;
	const char *const *keys;    /* as of struct optimizer */
	const char *const *aliases; /* MAY: as of struct optimizer */
	/* The share of the base rate at the place p = 0..1 behind the warm-up. */
	double (*share)(double p, const struct lr_shape *shape);
	int rule1_more; /* rule 1 of lr_at(): steps that it added to those there are */
};

const struct lr_curve *lr_curve_at(size_t i);
const struct lr_curve *lr_curve_find(const char *name);

/* The learning rate of step s = 1..total: base*s/warmup while s <= warmup (so the first step
 * already moves), then base times the share of the curve at p = (s-1-warmup)/(total-warmup): the
 * first step after the warm-up has the full rate, the last one is above the curve's end. That is
 * `rule` 2. Runs that began with rule 1 keep it: p = (s-warmup)/(total-warmup+rule1_more). */
double lr_at(const struct lr_curve *curve, int rule, double base, uint64_t s, uint64_t total,
	     uint64_t warmup, const struct lr_shape *shape);

#endif
