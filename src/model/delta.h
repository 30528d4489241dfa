/* SPDX-License-Identifier: Apache-2.0 */
/* delta.h - linear attention by the gated delta rule (Yang et al. 2025, arXiv 2412.06464), as
 * layers of Qwen3.5 have it in place of attention:
 *
 *   q, k, v = silu(conv(a Wqkv));  o = rule(q, k, v, a Wa, a Wb);  o = norm(o) silu(a Wz)
 *
 * The convolution is causal and by channel. What of earlier tokens is needed is a state of one
 * size, however long the text is. */
#ifndef HS_MODEL_DELTA_H
#define HS_MODEL_DELTA_H

#include "model/decoder.h"

struct err;

/* o (N, H*V), before the last linear module, of a (N,C). */
int delta_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *a, struct tensor **o_p, struct err *e);
/* Bytes that a layer keeps of what was before, while text is generated. */
size_t delta_kept_bytes(const struct model_config *m, enum dtype act);

#endif
