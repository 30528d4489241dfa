/* SPDX-License-Identifier: Apache-2.0 */
/* model_ernie4_5_moe.c - ERNIE 4.5 with experts: some layers have MLPs, the others experts chosen
 * by their probabilities plus a correction, and an expert that every token has. What predicts
 * further tokens (mtp_block and others) is not read, as in transformers. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"

/* Layers from moe_layer_start_index to moe_layer_end_index, every moe_layer_interval-th. */
static int read_layers(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t first = 1, last = -1, step = 1;
	TRY(json_opt_int(j, where, "moe_layer_start_index", 0, MODEL_LAYERS_MOST, &first, e));
	TRY(json_opt_int(j, where, "moe_layer_end_index", -1, MODEL_LAYERS_MOST, &last, e));
	TRY(json_opt_int(j, where, "moe_layer_interval", 1, MODEL_LAYERS_MOST, &step, e));
	if (last < 0)
		last = c->layers - 1;
	for (int64_t i = 0; i < c->layers; i++)
		if ((i + 1) % step || i < first || i > last)
			mixture_set_dense(c, i, c->intermediate);
	return mixture_check_some(where, c, e);
}

static int read_ernie4_5_moe(const json_t *j, const char *where, struct model_config *c,
			     struct err *e)
{
	bool bias = false;
	int64_t shared = 2;
	c->rope_near = true;
	c->correction = CORRECTION_STATICS;
	c->experts_whole = true;
	c->has_mtp = true;
	TRY(json_opt_bool(j, where, "use_bias", &bias, e));
	if (bias)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'use_bias' is true; only false is supported", where);
	TRY(read_layers(j, where, c, e));
	c->intermediate = 1536;
	TRY(json_opt_int(j, where, "moe_intermediate_size", 1, 1 << 22, &c->intermediate, e));
	TRY(json_opt_int(j, where, "moe_num_shared_experts", 0, 64, &shared, e));
	c->shared = shared * c->intermediate;
	TRY(mixture_read(j, where, "moe_num_experts", 64, 6, 0.001, c, e));
	/* transformers counts in this loss what would be chosen without the correction */
	return !c->router_loss ? 0
			       : err_set(e, ERR_UNSUPPORTED,
					 "%s: 'output_router_logits' is true; only false is "
					 "supported for this family",
					 where);
}

static const char *const types[] = { "ernie4_5_moe", NULL };
static const char *const keys[] = {
	"use_bias",
	"moe_layer_start_index",
	"moe_layer_end_index",
	"moe_layer_interval",
	"moe_intermediate_size",
	"moe_num_experts",
	"num_experts",
	"moe_k",
	"num_experts_per_tok",
	"moe_num_shared_experts",
	"router_aux_loss_coef",
	"output_router_logits",
	"moe_norm_min", /* a sum of probabilities is never so small */
	"moe_gate",     /* these say how it was trained */
	"moe_capacity",
	"moe_use_aux_free",
	"num_nextn_predict_layers",
	NULL,
};

const struct model_family model_ernie4_5_moe = { .name = "ernie4_5_moe",
						 .help = "ERNIE 4.5 (with experts)",
						 .model_types = types,
						 .keys = keys,
						 .rope_theta = 500000,
						 .norm_eps = 1e-5,
						 .head_dim = 128,
						 .tied = true,
						 .read = read_ernie4_5_moe };
