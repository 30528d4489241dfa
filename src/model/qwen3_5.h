/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3_5.h - for the Qwen3.5 families, dense and with experts: what they have in common. */
#ifndef HS_MODEL_QWEN3_5_H
#define HS_MODEL_QWEN3_5_H

#include "model/model.h"

#define QWEN3_5_KEYS                                                                               \
	"attention_bias", "attn_output_gate", "full_attention_interval", "layer_types",            \
		"linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",           \
		"linear_num_value_heads", "linear_value_head_dim", "mamba_ssm_dtype",              \
		"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"

/* Which layers have linear attention (delta.h) and its sizes, the gate on the output of attention
 * in the others, norms that multiply by their weight plus one, and layers that predict further
 * tokens, which are passed over. */
int qwen3_5_read(const json_t *j, const char *where, struct model_config *c, struct err *e);

#endif
