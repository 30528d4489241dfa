/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_config.h - a GGUF's hyperparameters as the keys of Hugging Face's config.json.
 *
 * Keys: model_type, hidden_size, intermediate_size, num_hidden_layers,
 * num_attention_heads, num_key_value_heads, head_dim, rms_norm_eps, rope_theta, rope_scaling,
 * vocab_size, max_position_embeddings, tie_word_embeddings, hidden_act, attention_bias (llama),
 * sliding_window (when the file has one), bos_token_id, eos_token_id, pad_token_id. rope_scaling is
 * null, {"rope_type":"linear","factor":x}, {"rope_type":"yarn",...} or, when the file has
 * rope_freqs.weight, {"rope_type":"gguf_factors","factors":[...]}: head_dim/2 numbers by which the
 * frequencies are divided. */
#ifndef HS_FILE_GGUF_CONFIG_H
#define HS_FILE_GGUF_CONFIG_H

#include "file/gguf.h"
#include "file/gguf_names.h"

/* *config_p: a new reference. ERR_UNSUPPORTED names a key that would change the mathematics in a
 * way that is not supported. */
int gguf_config(const struct gguf *g, const struct gguf_arch **arch_p, json_t **config_p,
		struct err *e);

#endif
