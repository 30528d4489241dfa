/* SPDX-License-Identifier: Apache-2.0 */
/* model_glm4.c - GLM-4: half of each head rotates, in pairs of neighbours; gate and up are one
 * matrix. Those of 2025 (model_type glm4) also have norms behind attention and MLP. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

static int read_glm4(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const char *type = json_string_value(json_object_get(j, "model_type"));
	c->rope_near = true;
	c->fused_gate_up = true;
	c->qkv_bias = true;
	c->norms = strcmp(type, "glm4") != 0 ? NORMS_BEFORE : NORMS_GLM;
	return json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e);
}

static const char *const types[] = { "glm4", "glm", NULL };
static const char *const keys[] = { "attention_bias", NULL };

const struct model_family model_glm4 = { .name = "glm4",
					 .help = "GLM-4",
					 .model_types = types,
					 .keys = keys,
					 .norm_eps = 1.5625e-7,
					 .head_dim = 128,
					 .rotary = 0.5,
					 .read = read_glm4 };
