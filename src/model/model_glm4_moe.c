/* SPDX-License-Identifier: Apache-2.0 */
/* model_glm4_moe.c - GLM-4.5, 4.6 and their Air: the first layers have MLPs, the others experts
 * chosen by the sigmoid of a logit plus a correction, and an expert that every token has. Layers
 * that predict further tokens (num_nextn_predict_layers) are not read, as in transformers. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

static int read_glm4_moe(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	static const struct mixture_defaults d = { 128, 8, 1408, 1 };
	int64_t dense = 1;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_bool(j, where, "use_qk_norm", &c->qk_norm, e));
	TRY(json_opt_int(j, where, "first_k_dense_replace", 0, c->layers - 1, &dense, e));
	for (int64_t i = 0; i < dense; i++)
		mixture_set_dense(c, i, c->intermediate);
	return mixture_read_corrected(j, where, &d, c, e);
}

static const char *const types[] = { "glm4_moe", NULL };
static const char *const keys[] = { MIXTURE_CORRECTED_KEYS, "attention_bias", "use_qk_norm",
				    "first_k_dense_replace", NULL };

const struct model_family model_glm4_moe = { .name = "glm4_moe",
					     .help = "GLM-4.5",
					     .model_types = types,
					     .keys = keys,
					     .norm_eps = 1e-5,
					     .rotary = 0.5,
					     .read = read_glm4_moe };
