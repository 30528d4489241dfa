/* SPDX-License-Identifier: Apache-2.0 */
/* prior.h - what the model said of all answers of a run before its first step. It is the reference
 * of preferences where the model without its adapters is none, because more is trained than
 * adapters. The coordinator keeps it, 8 bytes a sequence. */
#ifndef HS_TRAIN_PRIOR_H
#define HS_TRAIN_PRIOR_H

#include "proto/references.h"

#include <stdbool.h>

/* Round after round: those of an evaluation, then those of the steps behind `first`. */
struct prior {
	bool whole; /* all of them are known */
	uint64_t first;
	size_t evals;
	double *v;
	size_t *at; /* [rounds+1] */
	size_t rounds, cap, at_cap;
};

void prior_release(struct prior *p);
/* The figures of the next round: r has them all. */
int prior_add(struct prior *p, const struct references *r, struct err *e);
/* Into r, whose places are those of the same round: of training step `step`, or with 0 the i-th of
 * an evaluation. */
int prior_give(const struct prior *p, uint64_t step, size_t i, struct references *r, struct err *e);

#endif
