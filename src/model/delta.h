/* SPDX-License-Identifier: Apache-2.0 */
/* delta.h - linear attention by the gated delta rule (Yang et al. 2025, arXiv 2412.06464), as
 * layers of Qwen3.5 have it in place of attention:
 *
 *   q, k, v = silu(conv(a Wqkv));  o = rule(q, k, v, a Wa, a Wb);  o = norm(o) silu(a Wz)
 *
 * Or a short convolution between two gates, as layers of LFM2 have it (transformers, models/lfm2,
 * Lfm2ShortConv):
 *
 *   b, c, x = a Win;  o = c conv(b x)
 *
 * The convolutions are causal and by channel. What of earlier tokens is needed is a state of one
 * size, however long the text is. */
#ifndef HS_MODEL_DELTA_H
#define HS_MODEL_DELTA_H

#include "model/decoder.h"

struct err;

/* o (N, H*V), or of a short convolution (N,C), before the last linear module, of a (N,C). */
int delta_mix(struct tape *t, const struct layer *l, const struct layer_context *c,
	      struct tensor *a, struct tensor **o_p, struct err *e);
/* Bytes that a layer keeps of what was before, while text is generated. */
size_t delta_kept_bytes(const struct model_config *m, enum dtype act);

#endif
