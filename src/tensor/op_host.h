/* SPDX-License-Identifier: Apache-2.0 */
/* op_host.h - an op that is somebody's C function (op_host.c). */
#ifndef HS_TENSOR_OP_HOST_H
#define HS_TENSOR_OP_HOST_H

#include "tensor/tape.h"

struct err;

enum { HOST_OP_PARAMS = 5 };

/* What it gets; as hs_pass of heteroshard.h. */
struct host_pass {
	int64_t rows, in, out;
	const float *x; /* (rows,in) */
	float *y;       /* (rows,out); backward: NULL */
	const float *param[HOST_OP_PARAMS];
	const float *dy;
	float *dx; /* (rows,in) to be written, or NULL */
	float *dparam[HOST_OP_PARAMS];
};

struct host_op {
	const char *name;
	/* 0, or a number for the message */
	int (*forward)(void *ctx, const struct host_pass *p);
	int (*backward)(void *ctx, const struct host_pass *p);
	void *ctx;
};

/* y (N,out) of x (N,in). `op` must outlive the tape; p: parameters, ended by NULL where there are
 * fewer than HOST_OP_PARAMS; MAY be NULL. */
int op_host_apply(struct tape *t, const struct host_op *op, struct tensor *x,
		  struct param *const *p, int64_t out, struct tensor **y_p, struct err *e);

/* n numbers at `from`, in dtype `is`, as `want`: there, or in scratch where that is another one
 * (converted, unless `fill` is unset: then it is room for them). */
int op_host_as(struct tape *t, struct dev_ref from, enum dtype is, enum dtype want, int64_t n,
	       bool fill, struct dev_ref *r_p, struct err *e);
/* From there to where they belong. */
int op_host_back(struct tape *t, struct dev_ref to, enum dtype is, struct dev_ref from,
		 enum dtype has, int64_t n, struct err *e);
/* Adds to (acc), or writes, the gradient dx. */
int op_host_add(struct tape *t, const struct tensor *dx, struct dev_ref from, enum dtype has,
		int acc, struct err *e);

#endif
