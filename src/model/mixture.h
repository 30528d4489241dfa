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

/* An error where every layer has an MLP. */
int mixture_check_some(const char *where, const struct model_config *c, struct err *e);

/* moe_intermediate_size; if `shared` is not 0, shared_expert_intermediate_size of an expert that
 * every token has, times the sigmoid of a logit; norm_topk_prob. `width`, `shared` and
 * c->experts_whole are what missing ones mean. */
int mixture_read_widths(const json_t *j, const char *where, int64_t width, int64_t shared,
			struct model_config *c, struct err *e);
/* num_experts or num_local_experts (`count` is the model's own word), num_experts_per_tok (moe_k),
 * router_aux_loss_coef, output_router_logits; and what missing ones mean. */
int mixture_read(const json_t *j, const char *where, const char *count, int64_t default_count,
		 int64_t default_top, double default_loss, struct model_config *c, struct err *e);
/* A router as DeepSeek-V3 and GLM-4 have it, which chooses by the sigmoid of a logit and a
 * correction; experts that every token has beside them; and layers that predict further tokens and
 * are not read. Which layers have MLPs has been read. */
#define MIXTURE_CORRECTED_KEYS                                                                     \
	"n_group", "topk_group", "moe_intermediate_size", "n_shared_experts", "norm_topk_prob",    \
		"routed_scaling_factor", "num_nextn_predict_layers", "num_mtp_layers",             \
		"n_routed_experts", "num_experts", "num_local_experts", "num_experts_per_tok",     \
		"output_router_logits"
struct mixture_defaults { /* what missing keys mean */
	int64_t experts, top, width;
	double scale;
};
int mixture_read_corrected(const json_t *j, const char *where, const struct mixture_defaults *d,
			   struct model_config *c, struct err *e);
/* topk_method and scoring_func, which may be missing and may only be these. */
int mixture_router_is(const json_t *j, const char *where, const char *method, const char *scores,
		      struct err *e);
/* A key that may only be 1. */
int mixture_only_one(const json_t *j, const char *where, const char *key, struct err *e);
/* The factors of a run on the losses of routers, from its keys router_aux_loss_coef (below 0: as
 * the model's configuration says) and router_z_loss_coef. */
int mixture_losses(const struct model_config *c, double balance, double z, float *balance_p,
		   float *z_p, struct err *e);

#endif
