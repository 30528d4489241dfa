/* SPDX-License-Identifier: Apache-2.0 */
/* latent_keys.c - see latent_keys.h. */
#include "model/latent_keys.h"
#include "model/rope.h"

#include "base/err.h"
#include "base/json.h"

#include <math.h>

/* A width that transformers derives from others, and writes too. */
static int check_derived(const json_t *j, const char *where, const char *key, int64_t want,
			 struct err *e)
{
	int64_t n = want;
	TRY(json_opt_int(j, where, key, 1, 1 << 20, &n, e));
	return n == want ? 0
			 : err_set(e, ERR_INPUT, "%s: '%s' is %lld, and the other widths say %lld",
				   where, key, (long long)n, (long long)want);
}

int latent_read(const json_t *j, const struct model_family *f, const char *where,
		struct model_config *c, struct err *e)
{
	int64_t rot = 0;
	double scale = 1;
	bool near = true;
	const json_t *q = json_object_get(j, "q_lora_rank");
	if (json_is_integer(q)) /* null: queries have no latents */
		TRY(json_need_int(j, where, "q_lora_rank", 1, 1 << 20, &c->latent.q, e));
	else if (!json_is_null(q))
		return err_set(e, ERR_INPUT, "%s: 'q_lora_rank' must be there, a number or null",
			       where);
	TRY(json_need_int(j, where, "kv_lora_rank", 1, 1 << 20, &c->latent.kv, e));
	TRY(json_need_int(j, where, "qk_nope_head_dim", 1, MODEL_HEAD_DIM_MOST, &c->latent.plain,
			  e));
	TRY(json_need_int(j, where, "qk_rope_head_dim", 2, MODEL_HEAD_DIM_MOST, &rot, e));
	TRY(json_need_int(j, where, "v_head_dim", 1, MODEL_HEAD_DIM_MOST, &c->latent.value, e));
	const int64_t wide = c->latent.plain + rot;
	TRY(check_derived(j, where, "head_dim", rot, e));
	TRY(check_derived(j, where, "qk_head_dim", wide, e));
	if (c->kv_heads != c->heads)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'num_key_value_heads' is %lld; with latent attention only "
			       "num_attention_heads, %lld, is supported",
			       where, (long long)c->kv_heads, (long long)c->heads);
	if (rot % 2 || wide % 2 || wide > MODEL_HEAD_DIM_MOST || c->latent.value > wide)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: heads of %lld + %lld numbers (qk_nope_head_dim, "
			       "qk_rope_head_dim) with values of %lld (v_head_dim) are not "
			       "supported: even widths up to %d are, and values that are no wider",
			       where, (long long)c->latent.plain, (long long)rot,
			       (long long)c->latent.value, MODEL_HEAD_DIM_MOST);
	c->head_dim = rot; /* of which all rotates */
	TRY(rope_read(j, f, where, c, e));
	TRY(rope_score_scale(j, where, &scale, e));
	TRY(json_opt_bool(j, where, "rope_interleave", &near, e));
	TRY(json_opt_bool(j, where, "attention_bias", &c->latent.bias, e));
	c->rope_near = near;
	c->o_bias = c->latent.bias;
	c->latent.eps = 1e-6;
	c->head_dim = wide;
	c->attn_scale = scale / sqrt((double)wide);
	return 0;
}
