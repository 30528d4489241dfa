/* SPDX-License-Identifier: Apache-2.0 */
/* model_seed_oss.c - Seed-OSS: Llama with biases on q, k and v. Its config.json asks for dropout of
 * attention and of what a layer adds, which is not done here: a line says so. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"

#include <stdatomic.h>

static int read_seed_oss(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	double attention = 0, residual = 0;
	c->qkv_bias = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_bool(j, where, "attention_out_bias", &c->o_bias, e));
	TRY(json_opt_bool(j, where, "mlp_bias", &c->mlp_bias, e));
	TRY(json_opt_num(j, where, "attention_dropout", 0, 1, &attention, e));
	TRY(json_opt_num(j, where, "residual_dropout", 0, 1, &residual, e));
	if ((attention > 0 || residual > 0) && !atomic_flag_test_and_set(&told))
		log_warn("%s: attention_dropout %g and residual_dropout %g are not done: the model "
			 "is trained without (lora_dropout is done)",
			 where, attention, residual);
	return 0;
}

static const char *const types[] = { "seed_oss", NULL };
static const char *const keys[] = { "attention_bias", "attention_out_bias", "mlp_bias",
				    "residual_dropout", NULL };

const struct model_family model_seed_oss = { .name = "seed_oss",
					     .help = "Seed-OSS",
					     .model_types = types,
					     .keys = keys,
					     .head_dim = 128,
					     .drops = true,
					     .read = read_seed_oss };
