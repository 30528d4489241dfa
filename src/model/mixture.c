/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c - see mixture.h. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "tensor/routing.h"

int mixture_read(const json_t *j, const char *where, const char *count, int64_t default_count,
		 int64_t default_top, double default_loss, struct model_config *c, struct err *e)
{
	bool asked = false;
	c->experts = default_count;
	c->top_k = default_top;
	c->router_loss = default_loss;
	/* transformers writes either name */
	TRY(json_opt_int(j, where, "num_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "num_local_experts", 1, EXPERTS_MOST, &c->experts, e));
	TRY(json_opt_int(j, where, "num_experts_per_tok", 1, EXPERTS_MOST, &c->top_k, e));
	TRY(json_opt_num(j, where, "router_aux_loss_coef", 0, 1e6, &c->router_loss, e));
	TRY(json_opt_bool(j, where, "output_router_logits", &asked, e));
	if (c->top_k > c->experts)
		return err_set(e, ERR_INPUT,
			       "%s: a token goes to %lld experts (num_experts_per_tok), and there "
			       "are %lld (%s)",
			       where, (long long)c->top_k, (long long)c->experts, count);
	c->router_loss = asked ? c->router_loss : 0;
	return 0;
}

int mixture_losses(const struct model_config *c, double balance, double z, float *balance_p,
		   float *z_p, struct err *e)
{
	if (!c->experts && (balance > 0 || z > 0))
		return err_set(e, ERR_USAGE, "%s: a %s model has no router",
			       balance > 0 ? "router_aux_loss_coef" : "router_z_loss_coef",
			       c->family);
	*balance_p = (float)(balance < 0 ? c->router_loss : balance);
	*z_p = (float)z;
	return 0;
}
