/* SPDX-License-Identifier: Apache-2.0 */
/* model_gemma.c - Gemma (the first): a plain decoder with GeGLU, norms that multiply with 1 + w and
 * scaled embeddings (Gemma Team 2024, arXiv 2403.08295, section 2). */
#include "model/gemma.h"

#include "base/err.h"

#include <math.h>

static int read_gemma(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	TRY(gemma_read(j, where, c, e));
	c->attn_scale = 1 / sqrt((double)c->head_dim);
	return 0;
}

static const char *const types[] = { "gemma", NULL };
static const char *const keys[] = { "attention_bias", "use_bidirectional_attention", NULL };

const struct model_family model_gemma = { .name = "gemma",
					  .help = "Gemma",
					  .model_types = types,
					  .keys = keys,
					  .head_dim = 256,
					  .tied = true,
					  .gelu = true,
					  .read = read_gemma };
