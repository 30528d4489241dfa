/* SPDX-License-Identifier: Apache-2.0 */
/* prefer.h - losses of preferences: pure functions of the answers' log-probabilities.
 *
 * A pass has R rows, row r the sequences 2r and 2r+1 (data/batch.h, struct pairs). The unit of the
 * loss is the row: a loss is the sum over the rows of a pass, the division by all rows of the step
 * comes at its end, as with tokens. What is a mean over a pass (the likelihood of the chosen
 * answers, KTO's baseline) is evaluated in each pass and counts for its rows.
 *
 * The formulas are those of TRL 0.19 (dpo_trainer.py, cpo_trainer.py, orpo_trainer.py,
 * kto_trainer.py), which axolotl trains with; tests/golden/prefer has values of PyTorch. One file
 * prefer_<name>.c and one row of prefer.def each. */
#ifndef HS_PREFER_PREFER_H
#define HS_PREFER_PREFER_H

#include "data/dataset.h"

enum { PREFER_NAME = 16 };

struct prefer_options {
	char name[PREFER_NAME]; /* of the row; "": no preferences */
	double beta;
	double smoothing;  /* dpo_label_smoothing */
	double likelihood; /* rpo_alpha, cpo_alpha: share of the chosen answers' likelihood */
	double gamma;      /* simpo_gamma */
	double good, bad;  /* kto_desirable_weight, kto_undesirable_weight */
};

struct prefer_pass {
	int64_t rows;
	const double *logp;   /* (2R) sum of the log-probabilities of an answer's tokens */
	const double *ref;    /* (2R) the same by the reference; zeros where there is none */
	const int64_t *count; /* (2R) tokens of the answer */
	const int32_t *good;  /* (R) PREFER_SINGLE: whether the answer is wanted */
	/* of the labels of all chosen sequences: sum of their losses, and how many */
	double nll;
	int64_t nll_count;
};

/* Sums over the rows, and derivatives of `loss`. */
struct prefer_sums {
	double loss;
	double *dlogp;  /* (2R) by logp; the caller's, zeros */
	double dnll;    /* by nll */
	double *reward; /* (2R) the caller's, zeros; PREFER_SINGLE: of even sequences only */
};

struct prefer {
	const char *name, *help;
	const char *const *keys; /* of the configuration; not every row has all; ends with NULL */
	enum prefer_data data;
	bool reference; /* needs `ref` */
	bool prompts;   /* the prompt of a chosen sequence has labels */
	/* the key of `likelihood`, where the row has it; NULL: it is a constant */
	const char *likelihood;
	void (*sums)(const struct prefer_options *o, const struct prefer_pass *p,
		     struct prefer_sums *s);
};

const struct prefer *prefer_find(const char *name); /* NULL: there is none, as of "" */
const struct prefer *prefer_at(size_t i);           /* NULL: no more */

#endif
