/* SPDX-License-Identifier: Apache-2.0 */
/* model_granite4.c - Granite 4, the dense models whose layers all have attention (350M, 1B, Micro):
 * Granite 3 with gate and up as one and other names for the MLP. transformers calls the family
 * granitemoehybrid; its models with Mamba layers or experts are refused. Source: transformers 5.24,
 * models/granitemoehybrid. */
#include "model/granite.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

static int check_layers(const json_t *j, const char *where, const struct model_config *c,
			struct err *e)
{
	const json_t *list = json_object_get(j, "layer_types");
	if (!json_is_array(list))
		list = json_object_get(j, "layers_block_type");
	if ((int64_t)json_array_size(list) != c->layers)
		return err_set(e, ERR_INPUT, "%s: 'layer_types' must have %lld entries", where,
			       (long long)c->layers);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *type = json_string_value(json_array_get(list, i));
		const bool full =
			type && (!strcmp(type, "attention") || !strcmp(type, "full_attention"));
		if (!full)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: 'layer_types': layer %zu is '%.40s'; of Granite 4 only "
				       "models are supported whose layers all have attention",
				       where, i, type ? type : "?");
	}
	return 0;
}

static int read_granite4(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t experts = 8;
	const char *positions = "", *norm = "rmsnorm";
	TRY(json_opt_int(j, where, "num_local_experts", 0, 1 << 20, &experts, e));
	if (experts)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'num_local_experts' is %lld; of Granite 4 only models without "
			       "experts (0) are supported",
			       where, (long long)experts);
	TRY(check_layers(j, where, c, e));
	TRY(json_opt_str(j, where, "normalization_function", &norm, e));
	if (strcmp(norm, "rmsnorm") != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'normalization_function' is '%s'; only rmsnorm is supported",
			       where, norm);
	TRY(json_opt_str(j, where, "position_embedding_type", &positions, e));
	for (int64_t i = 0; i < c->layers; i++)
		c->no_rope[i] = strcmp(positions, "rope") != 0;
	c->intermediate = 1024;
	TRY(json_opt_int(j, where, "shared_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	c->fused_gate_up = c->one_mlp = true;
	return granite_read(j, where, c, e);
}

static const char *const types[] = { "granitemoehybrid", NULL };
static const char *const keys[] = { GRANITE_KEYS,
				    "num_local_experts",
				    "num_experts_per_tok",
				    "output_router_logits",
				    "router_aux_loss_coef",
				    "shared_intermediate_size",
				    "position_embedding_type",
				    "normalization_function",
				    "init_method",
				    "layer_types",
				    "layers_block_type",
				    "mamba_chunk_size",
				    "mamba_conv_bias",
				    "mamba_d_conv",
				    "mamba_d_head",
				    "mamba_d_state",
				    "mamba_expand",
				    "mamba_n_groups",
				    "mamba_n_heads",
				    "mamba_proj_bias",
				    "time_step_limit",
				    "time_step_min",
				    "time_step_max",
				    "time_step_floor",
				    NULL };

const struct model_family model_granite4 = { .name = "granite4",
					     .help = "Granite 4 (dense, attention in all layers)",
					     .model_types = types,
					     .keys = keys,
					     .no_mlp = true,
					     .read = read_granite4 };
