/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - the keys that the configurations of mixtures of experts share. */
#ifndef HS_MODEL_MIXTURE_H
#define HS_MODEL_MIXTURE_H

#include "model/model.h"

struct err;

/* decoder_sparse_step and mlp_only_layers of Qwen: every step-th layer has experts, unless it is
 * one of those; the others have an MLP of `width` numbers. */
int mixture_read_dense(const json_t *j, const char *where, int64_t width, struct model_config *c,
		       struct err *e);
/* Layer `i` has an MLP of `width` numbers. */
void mixture_set_dense(struct model_config *c, int64_t i, int64_t width);

/* moe_intermediate_size; if `shared` is not 0, shared_expert_intermediate_size of an expert that
 * every token has, times the sigmoid of a logit; norm_topk_prob. `width`, `shared` and
 * c->experts_whole are what missing ones mean. */
int mixture_read_widths(const json_t *j, const char *where, int64_t width, int64_t shared,
			struct model_config *c, struct err *e);
/* num_experts or num_local_experts (`count` is the model's own word), num_experts_per_tok (moe_k),
 * router_aux_loss_coef, output_router_logits; and what missing ones mean. */
int mixture_read(const json_t *j, const char *where, const char *count, int64_t default_count,
		 int64_t default_top, double default_loss, struct model_config *c, struct err *e);
/* The factors of a run on the losses of routers, from its keys router_aux_loss_coef (below 0: as
 * the model's configuration says) and router_z_loss_coef. */
int mixture_losses(const struct model_config *c, double balance, double z, float *balance_p,
		   float *z_p, struct err *e);

#endif
