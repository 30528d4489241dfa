/* SPDX-License-Identifier: Apache-2.0 */
/* model_mixtral.c - Mixtral: Mistral with experts in every layer. */
#include "model/mixture.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_mixtral(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 0;
	double jitter = 0;
	c->expert_names = EXPERTS_SPARSE;
	c->experts_whole = true;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_layers(c, window, 0);
	TRY(json_opt_num(j, where, "router_jitter_noise", 0, 1, &jitter, e));
	if (jitter > 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'router_jitter_noise' is %g; only 0 is supported", where,
			       jitter);
	return mixture_read(j, where, "num_local_experts", 8, 2, 0.001, c, e);
}

static const char *const types[] = { "mixtral", NULL };
static const char *const keys[] = { "sliding_window",       "num_experts",
				    "num_local_experts",    "num_experts_per_tok",
				    "router_aux_loss_coef", "output_router_logits",
				    "router_jitter_noise",  NULL };

const struct model_family model_mixtral = { .name = "mixtral",
					    .help = "Mixtral",
					    .model_types = types,
					    .keys = keys,
					    .rope_theta = 1e6,
					    .norm_eps = 1e-5,
					    .read = read_mixtral };
