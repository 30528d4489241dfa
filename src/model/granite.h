/* SPDX-License-Identifier: Apache-2.0 */
/* granite.h - what the configurations of Granite 3 and 4 share. */
#ifndef HS_MODEL_GRANITE_H
#define HS_MODEL_GRANITE_H

#include "model/model.h"

struct err;

/* Factors on embeddings, blocks, scores and logits, and the biases of attention. */
#define GRANITE_KEYS                                                                               \
	"attention_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier",   \
		"logits_scaling"
int granite_read(const json_t *j, const char *where, struct model_config *c, struct err *e);

#endif
