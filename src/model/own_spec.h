/* SPDX-License-Identifier: Apache-2.0 */
/* own_spec.h - a model of one's own: a list of blocks, as its text says (own_text.h). It is plain
 * data, part of struct model_config, and the same on every member of a job. */
#ifndef HS_MODEL_OWN_SPEC_H
#define HS_MODEL_OWN_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { OWN_BLOCKS_MOST = 256, OWN_DIMS = 3, OWN_NUMBERS = 6, OWN_NAME = 32 };

struct own_kind;

/* Of one row of an activation: its numbers are dim[0] x ... x dim[ndim-1], row-major. */
struct own_shape {
	int ndim;
	int32_t dim[OWN_DIMS];
};

struct own_block {
	const struct own_kind *kind;
	uint16_t inside; /* so many blocks behind it are inside of it, with those inside of them */
	uint16_t number; /* as parameters are named: its place among its neighbours, from 0 */
	struct own_shape in, out;
	double v[OWN_NUMBERS]; /* its settings, in the order of its kind's keys */
};

struct own_model {
	int n; /* blocks, those inside of others included, the loss not; 0: not such a model */
	/* The input: floats of this shape, or (tokens > 0) one id below `tokens` a row, which is
	 * looked up in an embedding. */
	struct own_shape input;
	int64_t tokens;
	struct own_block loss;
	uint16_t first[OWN_BLOCKS_MOST]; /* the block that layer i is */
	struct own_block block[OWN_BLOCKS_MOST];
};

static inline int64_t own_count(const struct own_shape *s)
{
	int64_t n = 1;
	for (int i = 0; i < s->ndim && n < (int64_t)1 << 31; i++) /* more is refused anyway */
		n *= s->dim[i];
	return n;
}

/* Numbers of 4 bytes in a row of the input: floats, or an id. */
static inline int64_t own_input_words(const struct own_model *m)
{
	return m->tokens ? 1 : own_count(&m->input);
}

/* And in a row of what the loss compares with: the loss's output says it (own_loss.c). */
static inline int64_t own_target_words(const struct own_model *m)
{
	return own_count(&m->loss.out);
}

#endif
