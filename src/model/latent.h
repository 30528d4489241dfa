/* SPDX-License-Identifier: Apache-2.0 */
/* latent.h - queries, keys and values of latent attention (DeepSeek-AI 2024, arXiv 2405.04434,
 * section 2.1), as GLM-4.7-Flash has it:
 *
 *   q = norm(a Wqa) Wqb, or a Wq;  c, r = a Wkva;  k, v = norm(c) Wkvb, of each head;
 *   q = q1, turn(q2);  k = k, turn(r), r being that of all heads
 *
 * Values that are narrower than keys get zeros behind them, which come out of attention as zeros,
 * so attention is that of other families. While text is generated, whole keys and values are kept
 * and not latents: those would go through Wkvb again for each new token. */
#ifndef HS_MODEL_LATENT_H
#define HS_MODEL_LATENT_H

#include "model/decoder.h"

struct err;

/* q, k and v (N,H,D) of a (N,C). */
int latent_qkv(struct tape *t, const struct layer *l, const struct layer_context *c,
	       struct tensor *a, struct tensor *part[3], struct err *e);

#endif
