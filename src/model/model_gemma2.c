/* SPDX-License-Identifier: Apache-2.0 */
/* model_gemma2.c - Gemma 2: norms before and behind, a window on every other layer, soft caps on
 * scores and logits (Gemma Team 2024, arXiv 2408.00118, section 2). */
#include "model/gemma.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_gemma2(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 4096;
	c->norms = NORMS_GEMMA;
	c->attn_cap = 50;
	c->logit_cap = 30;
	TRY(gemma_read(j, where, c, e));
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_every(c, window, 2);
	return model_window_types(j, where, c, e);
}

static const char *const types[] = { "gemma2", NULL };
static const char *const keys[] = { GEMMA_KEYS, "sliding_window", "layer_types", NULL };

const struct model_family model_gemma2 = { .name = "gemma2",
					   .help = "Gemma 2",
					   .model_types = types,
					   .keys = keys,
					   .head_dim = 256,
					   .tied = true,
					   .gelu = true,
					   .read = read_gemma2 };
