/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - the list of ops: the rows of op.def. */
#include "tensor/tape.h"

const struct op *const ops[] = {
#define OP(name) &op_##name,
#include "tensor/op.def"
#undef OP
	NULL
};
