/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - optimizers, the gradient norm and the learning-rate curve.
 *
 * All state and all arithmetic are float32 on the device that holds the parameter. The values that
 * every worker must apply alike (learning rate, gradient scale, step number) are arguments: an
 * optimizer decides nothing. */
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

/* One update. `step` counts from 1. The gradient is multiplied by `scale` first (1 / trained tokens
 * of the global batch, times the clip factor). */
struct optim_step {
	uint64_t step;
	float lr, scale;
};

struct optimizer {
	const char *name, *help;
	/* MAY: other names that configurations use, and configuration keys that not every optimizer
	 * reads; NULL-terminated */
	const char *const *aliases, *const *keys;
	/* float32 numbers kept per parameter: param->state[0..states), at most PARAM_STATES */
	int states;
	const char *const *state_names; /* in checkpoints: "exp_avg", "exp_avg_sq" */
	int (*update)(struct param *p, const struct optim_config *c, const struct optim_step *s,
		      struct err *e);
};

/* The rows: i-th one (NULL past the end), by name (NULL: no such row). */
const struct optimizer *optimizer_at(size_t i);
const struct optimizer *optimizer_find(const char *name);

/* Allocates and clears the state of a trained parameter. */
int optim_init(const struct optimizer *o, struct param *p, const struct optim_config *c,
	       struct err *e);
/* Updates, casts into the activation dtype, clears the gradient. */
int optim_update(const struct optimizer *o, struct param *p, const struct optim_config *c,
		 const struct optim_step *s, struct err *e);
/* Clears the gradient without a step (a skipped step). */
int optim_zero_grad(struct param *p, struct err *e);

/* Sum of squares of the gradient; not finite when the gradient is not. Block sums on the device,
 * added in double on the host, in a fixed order. `scratch` and `host` hold the block sums; host is
 * grown as needed. */
struct norm_buffer {
	float *sum;
	size_t cap;
};
int grad_sqnorm(const struct param *p, struct dmem *scratch, struct norm_buffer *b, double *sum_p,
		struct err *e);

/* A learning-rate curve: what follows the warm-up. One file lr_<name>.c with its formula. */
struct lr_curve {
	const char *name, *help;
	const char *const *keys; /* as of struct optimizer */
	/* The share of the base rate at the place p = 0..1 behind the warm-up; `least` is
	 * min_ratio of lr_at(). */
	double (*share)(double p, double least);
	int rule1_more; /* rule 1 of lr_at(): steps that it added to those there are */
};

const struct lr_curve *lr_curve_at(size_t i);
const struct lr_curve *lr_curve_find(const char *name);

/* The learning rate of step s = 1..total: base*s/warmup while s <= warmup (so the first step
 * already moves), then base times the share of the curve at p = (s-1-warmup)/(total-warmup): the
 * first step after the warm-up has the full rate, the last one is above the curve's end. That is
 * `rule` 2. Runs that began with rule 1 keep it: p = (s-warmup)/(total-warmup+rule1_more). */
double lr_at(const struct lr_curve *curve, int rule, double base, uint64_t s, uint64_t total,
	     uint64_t warmup, double min_ratio);

#endif
