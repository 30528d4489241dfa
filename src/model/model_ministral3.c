/* SPDX-License-Identifier: Apache-2.0 */
/* model_ministral3.c - Ministral 3: Llama with YaRN, whose queries grow with the logarithm of their
 * position, from `original_max_position_embeddings` on (transformers, models/ministral3). Sequences
 * end before that, so the factor is 1. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/rope.h"
#include "model/window.h"

enum { ORIGINAL = 16384 };

/* What missing rope parameters mean to transformers; mscale and mscale_all_dim cancel out. */
static int default_rope(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	json_t *s =
		json_pack("{s:s,s:f,s:i,s:f}", "rope_type", "yarn", "factor", 16.0,
			  "original_max_position_embeddings", ORIGINAL, "attention_factor", 1.0);
	if (!s)
		return err_nomem(e, 256, "rope parameters");
	int rc = rope_scale(j, s, where, 1e6, c, 0, e);
	json_decref(s);
	return rc;
}

static int read_ministral3(const json_t *j, const char *where, struct model_config *c,
			   struct err *e)
{
	const json_t *p = json_object_get(j, "rope_parameters");
	int64_t window = 0, grow = ORIGINAL;
	double beta = 0.1;
	if (json_is_object(p)) {
		TRY(json_opt_num(p, where, "llama_4_scaling_beta", 0, 1e3, &beta, e));
		TRY(json_opt_int(p, where, "original_max_position_embeddings", 1, 1ll << 40, &grow,
				 e));
	} else {
		TRY(default_rope(j, where, c, e));
	}
	if (beta > 0 && (!c->max_positions || c->max_positions > grow))
		c->max_positions = grow;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_layers(c, window, 0);
	return 0;
}

static const char *const types[] = { "ministral3", NULL };
static const char *const keys[] = { "sliding_window", NULL };

const struct model_family model_ministral3 = { .name = "ministral3",
					       .help = "Ministral 3 (up to 16,384 tokens)",
					       .model_types = types,
					       .keys = keys,
					       .rope_theta = 1e6,
					       .norm_eps = 1e-5,
					       .head_dim = 128,
					       .read = read_ministral3 };
