/* SPDX-License-Identifier: Apache-2.0 */
/* array_idx.h - IDX, the format of MNIST: two zero bytes, a type, how many dimensions, each in four
 * bytes, the highest first; then the numbers (yann.lecun.com/exdb/mnist). */
#ifndef HS_DATA_ARRAY_IDX_H
#define HS_DATA_ARRAY_IDX_H

#include "data/array_raw.h"

bool idx_is(const struct array_raw *r);
int idx_read_header(struct array_raw *r, struct err *e);

#endif
