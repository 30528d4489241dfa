/* SPDX-License-Identifier: Apache-2.0 */
/* model_glm4_moe_lite.c - GLM-4.7-Flash: the experts of GLM-4.5 (model_glm4_moe.c) behind latent
 * attention. */
#include "model/latent_keys.h"
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

/* mlp_layer_types, as transformers reads it; without it the first layer has an MLP. The older
 * first_k_dense_replace may stand beside it and must say the same. */
static int read_dense(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const json_t *list = json_object_get(j, "mlp_layer_types");
	int64_t first = -1;
	if (json_is_array(list) && (int64_t)json_array_size(list) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'mlp_layer_types' has %zu layers, the model %lld",
			       where, json_array_size(list), (long long)c->layers);
	if (list && !json_is_array(list) && !json_is_null(list))
		return err_set(e, ERR_INPUT, "%s: 'mlp_layer_types' must be a list", where);
	for (int64_t i = 0; i < c->layers; i++) {
		const char *type = i ? "sparse" : "dense";
		if (json_is_array(list))
			type = json_string_value(json_array_get(list, (size_t)i));
		if (!type || (strcmp(type, "dense") != 0 && strcmp(type, "sparse") != 0))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'mlp_layer_types' of layer %lld is neither 'dense' nor "
				       "'sparse'",
				       where, (long long)i);
		if (*type == 'd')
			mixture_set_dense(c, i, c->intermediate);
	}
	TRY(mixture_check_some(where, c, e));
	TRY(json_opt_int(j, where, "first_k_dense_replace", 0, c->layers, &first, e));
	for (int64_t i = 0; first >= 0 && i < c->layers; i++)
		if (c->dense[i] != (i < first))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'first_k_dense_replace' is %lld, and %s", where,
				       (long long)first,
				       json_is_array(list)
					       ? "'mlp_layer_types' says something else"
					       : "without 'mlp_layer_types' only 1 is supported");
	return 0;
}

static int read_glm4_moe_lite(const json_t *j, const char *where, struct model_config *c,
			      struct err *e)
{
	static const struct mixture_defaults d = { 64, 4, 1536, 1.8 };
	TRY(read_dense(j, where, c, e));
	TRY(mixture_router_is(j, where, "noaux_tc", "sigmoid", e));
	TRY(mixture_only_one(j, where, "moe_layer_freq", e));
	return mixture_read_corrected(j, where, &d, c, e);
}

static const char *const types[] = { "glm4_moe_lite", NULL };
static const char *const keys[] = { LATENT_KEYS,       MIXTURE_CORRECTED_KEYS,  "rope_interleave",
				    "mlp_layer_types", "first_k_dense_replace", "topk_method",
				    "scoring_func",    "moe_layer_freq",        NULL };

const struct model_family model_glm4_moe_lite = { .name = "glm4_moe_lite",
						  .help = "GLM-4.7-Flash",
						  .model_types = types,
						  .keys = keys,
						  .norm_eps = 1e-5,
						  .latent = true,
						  .read = read_glm4_moe_lite };
