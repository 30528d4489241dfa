/* SPDX-License-Identifier: Apache-2.0 */
/* model_qwen2.c - Qwen2 and Qwen2.5: biases on q, k and v; an optional window on the
 * upper layers. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_qwen2(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->qkv_bias = true;
	return qwen_read_window(j, where, c, e);
}

static const char *const types[] = { "qwen2", NULL };
static const char *const keys[] = { "use_sliding_window", "sliding_window", "max_window_layers",
				    "layer_types",        "use_mrope",      NULL };

const struct model_family model_qwen2 = { .name = "qwen2",
					  .help = "Qwen2 and Qwen2.5",
					  .model_types = types,
					  .keys = keys,
					  .read = read_qwen2 };
