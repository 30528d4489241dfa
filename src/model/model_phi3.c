/* SPDX-License-Identifier: Apache-2.0 */
/* model_phi3.c - Phi-3, Phi-3.5, Phi-4 and their mini models: Llama with q, k, v as one matrix and
 * gate and up as one, and LongRoPE. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_phi3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	static const char *const drops[] = { "resid_pdrop", "embd_pdrop" };
	static const char *const ones[] = { "full_attn_mod", "interpolate_factor" };
	int64_t window = 0;
	for (int i = 0; i < 2; i++) {
		double p = 0;
		TRY(json_opt_num(j, where, drops[i], 0, 1, &p, e));
		if (p > 0)
			return err_set(e, ERR_UNSUPPORTED, "%s: '%s' is %g; only 0 is supported",
				       where, drops[i], p);
	}
	for (int i = 0; i < 2; i++) {
		int64_t one = 1;
		TRY(json_opt_int(j, where, ones[i], 1, 1, &one, e));
	}
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	c->o_bias = c->qkv_bias;
	c->fused_qkv = c->fused_gate_up = true;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_layers(c, window, 0);
	return 0;
}

static const char *const types[] = { "phi3", NULL };
static const char *const keys[] = { "attention_bias",     "sliding_window",
				    "resid_pdrop",        "embd_pdrop",
				    "full_attn_mod",      "original_max_position_embeddings",
				    "interpolate_factor", NULL };

const struct model_family model_phi3 = { .name = "phi3",
					 .help = "Phi-3, Phi-3.5, Phi-4",
					 .model_types = types,
					 .keys = keys,
					 .norm_eps = 1e-5,
					 .rotary = 1,
					 .read = read_phi3 };
