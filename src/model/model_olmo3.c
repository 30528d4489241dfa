/* SPDX-License-Identifier: Apache-2.0 */
/* model_olmo3.c - OLMo 3: OLMo 2 with a window in three layers of four, whose rotary frequencies
 * are not scaled (transformers, models/olmo3). */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/rope.h"
#include "model/window.h"

enum { EVERY = 4, THETA = 500000 };

static int read_olmo3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 4096;
	double theta = THETA;
	c->norms = NORMS_BEHIND;
	c->qk_norm = c->qk_norm_whole = true;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_every(c, window, EVERY);
	TRY(model_window_types(j, where, c, e));
	TRY(json_opt_num(j, where, "rope_theta", 1, 1e12, &theta, e));
	return rope_read_windowed(j, where, theta, c, e);
}

static const char *const types[] = { "olmo3", NULL };
static const char *const keys[] = { "attention_bias", "sliding_window", "layer_types", NULL };

const struct model_family model_olmo3 = { .name = "olmo3",
					  .help = "OLMo 3",
					  .model_types = types,
					  .keys = keys,
					  .rope_theta = THETA,
					  .norm_eps = 1e-5,
					  .read = read_olmo3 };
