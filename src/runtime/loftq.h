/* SPDX-License-Identifier: Apache-2.0 */
/* loftq.h - adapters that begin with what quantisation took from a weight: s B A is close to
 * W - NF4(W), as far as its rank goes.
 *
 * Li et al. 2023 (LoftQ, arXiv 2310.08659), one step with the base as it is: PEFT's
 * replace_lora_weights_loftq. So the base needs no other weights, and the adapter is one like any
 * other. With the singular values S of that difference, A = sqrt(S/s) V^T and B = U sqrt(S/s). */
#ifndef HS_RUNTIME_LOFTQ_H
#define HS_RUNTIME_LOFTQ_H

#include "file/model_file.h"
#include "tensor/quant.h"

#include <signal.h>

struct err;

struct loftq {
	struct model_file *file;
	struct dev *dev; /* a CPU */
	bool double_quant;
	const volatile sig_atomic_t *stop; /* MAY be NULL */
};

/* The adapter a (R,in), b (out,R) of a weight of the file. *left_p MAY be NULL: the share of the
 * difference, in squares, that is left. */
int loftq_begin(const struct loftq *l, const char *weight, int64_t r, double scale, float *a,
		float *b, double *left_p, struct err *e);
/* The same of a difference d (out,in). */
int loftq_divide(const float *d, int64_t out, int64_t in, int64_t r, double scale, float *a,
		 float *b, double *left_p, struct err *e);

#endif
