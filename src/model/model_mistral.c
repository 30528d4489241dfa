/* SPDX-License-Identifier: Apache-2.0 */
/* model_mistral.c - Mistral: Llama with a sliding window on all layers (Jiang et al. 2023,
 * section 2). */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/window.h"

static int read_mistral(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	int64_t window = 0;
	TRY(json_opt_int(j, where, "sliding_window", 1, 1ll << 40, &window, e));
	model_window_layers(c, window, 0);
	return 0;
}

static const char *const types[] = { "mistral", NULL };
static const char *const keys[] = { "sliding_window", NULL };

const struct model_family model_mistral = { .name = "mistral",
					    .help = "Mistral",
					    .model_types = types,
					    .keys = keys,
					    .read = read_mistral };
