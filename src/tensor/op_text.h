/* SPDX-License-Identifier: Apache-2.0 */
/* op_text.h - an op that is somebody's text of kernels (op_text.c), for every device that compiles
 * texts (dev.h). */
#ifndef HS_TENSOR_OP_TEXT_H
#define HS_TENSOR_OP_TEXT_H

#include "dev/dev_text.h"
#include "tensor/tape.h"

struct err;

enum { TEXT_OP_PARAMS = 5, TEXT_OP_SETTINGS = 6 };

struct text_op {
	const struct dev_text *text; /* stays as long as devices are open */
	bool by_rows; /* FORWARD and BACKWARD: a work-group for each row, not a lane a number */
	const double *set; /* [TEXT_OP_SETTINGS] */
};

/* y (N,out) of x (N,in). `op` must outlive the tape; p: parameters, ended
 * by NULL where there are fewer than TEXT_OP_PARAMS; MAY be NULL. */
int op_text_apply(struct tape *t, const struct text_op *op, struct tensor *x,
		  struct param *const *p, int64_t out, struct tensor **y_p, struct err *e);

#endif
