/* SPDX-License-Identifier: Apache-2.0 */
/* gated.h - what the ops y = f(gate) * up share (Shazeer 2020, "GLU Variants Improve Transformer");
 * each has kernels of its own, some of which take two numbers more, a.f. gate, up and y are (N,F).
 * The gradients are written over gate and up, which are not needed afterwards. */
#ifndef HS_TENSOR_GATED_H
#define HS_TENSOR_GATED_H

#include "tensor/ops.h"

struct err;

void gated_shape(const struct tape *t, const struct op_args *a, struct tensor *y);
int gated_forward(struct tape *t, struct tape_node *n, enum dev_kernel k, struct err *e);
int gated_backward(struct tape *t, struct tape_node *n, enum dev_kernel k, struct err *e);
double gated_bytes(const struct tape_node *n);

#endif
