/* SPDX-License-Identifier: Apache-2.0 */
/* model_ernie4_5.c - ERNIE 4.5 (dense): Llama whose rotary pairs are neighbours. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"

static int read_ernie4_5(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	c->rope_near = true;
	TRY(json_opt_bool(j, where, "use_bias", &c->qkv_bias, e));
	c->o_bias = c->mlp_bias = c->qkv_bias;
	return 0;
}

static const char *const types[] = { "ernie4_5", NULL };
static const char *const keys[] = { "use_bias", NULL };

const struct model_family model_ernie4_5 = { .name = "ernie4_5",
					     .help = "ERNIE 4.5 (dense)",
					     .model_types = types,
					     .keys = keys,
					     .rope_theta = 500000,
					     .norm_eps = 1e-5,
					     .head_dim = 128,
					     .tied = true,
					     .read = read_ernie4_5 };
