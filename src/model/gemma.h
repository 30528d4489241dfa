/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.h - for the Gemma families: what they have in common. */
#ifndef HS_MODEL_GEMMA_H
#define HS_MODEL_GEMMA_H

#include "model/model.h"

#define GEMMA_KEYS                                                                                 \
	"attention_bias", "query_pre_attn_scalar", "attn_logit_softcapping",                       \
		"final_logit_softcapping", "cache_implementation", "use_bidirectional_attention"

/* Norms that multiply with 1 + w, embeddings times sqrt(C), the factor on scores, and soft caps,
 * where the caller has set the defaults of attn_cap and logit_cap. */
int gemma_read(const json_t *j, const char *where, struct model_config *c, struct err *e);

#endif
