/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen3_5.c - Qwen3.5 (dense): three layers of four have linear attention (delta.h), the
 * fourth attention with a gate on its output; norms multiply by their weight plus one. */
#include "model/qwen3_5.h"

static const char *const types[] = { "qwen3_5_text", NULL };
static const char *const keys[] = { QWEN3_5_KEYS, "mlp_only_layers", NULL };

const struct model_family model_qwen3_5 = { .name = "qwen3_5",
					    .help = "Qwen3.5 (dense)",
					    .model_types = types,
					    .keys = keys,
					    .head_dim = 256,
					    .rotary = 0.25,
					    .read = qwen3_5_read };
