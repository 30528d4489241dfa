/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - optimizers, the gradient norm and the learning-rate curve.
 *
 * All state and all arithmetic are float32 on the device that holds the parameter. What every
 * worker must apply alike (learning rate, gradient scale, step number) comes in from outside: an
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
	const char *name;
	/* float32 numbers kept per parameter: param->state[0..states) */
	int states;
	const char *const *state_names; /* in checkpoints: "exp_avg", "exp_avg_sq" */
	int (*update)(struct param *p, const struct optim_config *c, const struct optim_step *s,
		      struct err *e);
};

const struct optimizer *optimizer_find(const char *name); /* NULL: no such row */

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

/* The learning rate of step s = 1..total: base*s/warmup while s <= warmup (so the first step
 * already moves), then
 *   cosine:   base*(r + (1-r)*(1+cos(pi*(s-warmup)/(total-warmup)))/2), r = min_ratio (Loshchilov &
 *             Hutter 2017, SGDR, eq. 5)
 *   linear:   base*(total-s+1)/(total-warmup+1): never zero on a step that is taken
 *   constant: base
 * -1 when there is no such curve. */
double lr_at(const char *curve, double base, uint64_t s, uint64_t total, uint64_t warmup,
	     double min_ratio);

#endif
