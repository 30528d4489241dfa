/* SPDX-License-Identifier: Apache-2.0 */
/* model_gemma3.c - Gemma 3, text: as Gemma 2, with norms on the heads of q and k in place of soft
 * caps, and five layers with a window and rotary frequencies of their own to each one without
 * (Gemma Team 2025, arXiv 2503.19786, section 2). */
#include "model/gemma.h"

#include "base/err.h"
#include "base/json.h"
#include "model/rope.h"
#include "model/window.h"

static int read_gemma3(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 4096, pattern = 6;
	double theta = 10000;
	c->norms = NORMS_GEMMA;
	c->qk_norm = true;
	TRY(gemma_read(j, where, c, e));
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	TRY(json_opt_int(j, where, "_sliding_window_pattern", 1, 1 << 20, &pattern, e));
	TRY(json_opt_int(j, where, "sliding_window_pattern", 1, 1 << 20, &pattern, e));
	model_window_every(c, window, pattern);
	TRY(model_window_types(j, where, c, e));
	TRY(json_opt_num(j, where, "rope_local_base_freq", 1, 1e12, &theta, e));
	return rope_read_windowed(j, where, theta, c, e);
}

static const char *const types[] = { "gemma3_text", NULL };
static const char *const keys[] = { GEMMA_KEYS,
				    "sliding_window",
				    "layer_types",
				    "sliding_window_pattern",
				    "_sliding_window_pattern",
				    "rope_local_base_freq",
				    NULL };

const struct model_family model_gemma3 = { .name = "gemma3",
					   .help = "Gemma 3",
					   .model_types = types,
					   .keys = keys,
					   .rope_theta = 1e6,
					   .head_dim = 256,
					   .tied = true,
					   .gelu = true,
					   .read = read_gemma3 };
