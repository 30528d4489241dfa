/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - attention of a decoder layer, between its norm and its last linear module. */
#ifndef HS_MODEL_ATTENTION_H
#define HS_MODEL_ATTENTION_H

#include "model/decoder.h"

struct err;

/* o (N,H*D) of a (N,C). Where keys and values are kept, those of a are appended to them. */
int attention_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
		  struct tensor *a, struct tensor **o_p, struct err *e);

#endif
