/* SPDX-License-Identifier: Apache-2.0 */
/* stage_param.h - the parameters of a stage that is being built, as the blocks of the model ask for
 * them: from the source, in the form that the stage's options want (frozen or trained, 4 bits,
 * shared, gathered, on the host). */
#ifndef HS_MODEL_STAGE_PARAM_H
#define HS_MODEL_STAGE_PARAM_H

#include "model/stage.h"

struct err;

struct stage_builder {
	struct stage *s; /* its `param` has room for all of them */
	const struct weight_source *src;
	float *part; /* rows on their way */
	size_t cap;
	struct state_dealt dealt[2]; /* of frozen parameters, of trained ones */
};

/* Adds the parameter `name` of this shape, with the values of the source. `layer`: of the model; -1
 * the front, INT_MAX the end. `linear`: a matrix that may be quantised. */
int stage_param_add(struct stage_builder *b, int layer, const char *name, int ndim,
		    const int64_t *dim, bool linear, struct param **p_p, struct err *e);
/* Fills in `p`, of plain numbers, without values: for parameters that the source does not have. The
 * name is borrowed. */
int stage_param_plain(struct stage_builder *b, struct param *p, const char *name, int ndim,
		      const int64_t *dim, bool trained, struct err *e);

#endif
