/* SPDX-License-Identifier: Apache-2.0 */
/* lfm.c - see lfm.h. */
#include "model/lfm.h"

#include "base/err.h"
#include "base/json.h"

int lfm_read(const json_t *j, const char *where, int64_t taps, struct model_config *c,
	     struct err *e)
{
	bool bias = false;
	c->lfm2 = c->qk_norm = true;
	c->norms = NORMS_LFM2;
	c->delta_conv = taps;
	TRY(json_opt_num(j, where, "norm_eps", 0, 1, &c->norm_eps, e));
	TRY(json_opt_bool(j, where, "tie_embedding", &c->tied, e));
	TRY(json_opt_int(j, where, "conv_L_cache", 2, 16, &c->delta_conv, e));
	TRY(json_opt_bool(j, where, "conv_bias", &bias, e));
	return bias ? err_set(e, ERR_UNSUPPORTED,
			      "%s: 'conv_bias' is true; only false is supported", where)
		    : 0;
}
