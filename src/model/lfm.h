/* SPDX-License-Identifier: Apache-2.0 */
/* lfm.h - what the configurations of LFM2, LFM2 with experts and LFM3 share. */
#ifndef HS_MODEL_LFM_H
#define HS_MODEL_LFM_H

#include "model/model.h"

struct err;

/* Norms, tied embeddings and short convolutions of `taps` positions where the file does not say
 * how many; those with a bias are refused. */
#define LFM_KEYS "norm_eps", "tie_embedding", "conv_L_cache", "conv_bias"
int lfm_read(const json_t *j, const char *where, int64_t taps, struct model_config *c,
	     struct err *e);

#endif
