/* SPDX-License-Identifier: Apache-2.0 */
/* array_raw.h - numbers that lie in a file one after the other, row after row, in binary. */
#ifndef HS_DATA_ARRAY_RAW_H
#define HS_DATA_ARRAY_RAW_H

#include "data/array.h"
#include "data/bytes.h"

enum raw_type {
	RAW_I1,
	RAW_U1,
	RAW_I2,
	RAW_U2,
	RAW_I4,
	RAW_U4,
	RAW_I8,
	RAW_U8,
	RAW_F2,
	RAW_F4,
	RAW_F8
};

struct array_raw {
	struct array a;
	struct bytes b;
	uint64_t at; /* of the first number */
	enum raw_type type;
	bool swap; /* bytes are in the other order than this machine's */
};

extern const struct array_kind array_raw_kind;

int raw_new(const char *path, const struct array_wish *w, struct array_raw **r_p, struct err *e);
/* Sets rows and each from a shape, the first dimension being the rows, and checks that all of them
 * are there. */
int raw_shape(struct array_raw *r, int ndim, const uint64_t *dim, struct err *e);
bool raw_big_endian(void);
unsigned raw_size(enum raw_type t);

#endif
