/* SPDX-License-Identifier: Apache-2.0 */
/* latent_keys.h - the keys of a configuration with latent attention (latent.h). */
#ifndef HS_MODEL_LATENT_KEYS_H
#define HS_MODEL_LATENT_KEYS_H

#include "model/model.h"

struct err;

/* What such a family lists among its keys. */
#define LATENT_KEYS                                                                                \
	"attention_bias", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",   \
		"qk_head_dim", "v_head_dim"

/* Widths, rotation and the factor on scores. */
int latent_read(const json_t *j, const struct model_family *f, const char *where,
		struct model_config *c, struct err *e);

#endif
