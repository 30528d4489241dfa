/* SPDX-License-Identifier: Apache-2.0 */
/* gemma.c - see gemma.h. */
#include "model/gemma.h"

#include "base/err.h"
#include "base/json.h"

#include <math.h>

/* A missing key leaves the default; null means no cap. */
static int read_cap(const json_t *j, const char *where, const char *key, double *v, struct err *e)
{
	if (json_is_null(json_object_get(j, key)))
		*v = 0;
	return json_opt_num(j, where, key, 1e-3, 1e6, v, e);
}

int gemma_read(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	double width = 256;
	bool both = false;
	TRY(json_opt_bool(j, where, "attention_bias", &c->qkv_bias, e));
	TRY(json_opt_bool(j, where, "use_bidirectional_attention", &both, e));
	TRY(json_opt_num(j, where, "query_pre_attn_scalar", 1e-3, 1e9, &width, e));
	TRY(read_cap(j, where, "attn_logit_softcapping", &c->attn_cap, e));
	TRY(read_cap(j, where, "final_logit_softcapping", &c->logit_cap, e));
	if (both)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: 'use_bidirectional_attention' is true; only false is supported",
			       where);
	c->o_bias = c->qkv_bias;
	c->norm_plus = 1;
	c->embed_scale = sqrt((double)c->hidden);
	c->embed_rounded = true;
	c->attn_scale = 1 / sqrt(width);
	return 0;
}
