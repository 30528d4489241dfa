/* SPDX-License-Identifier: Apache-2.0 */
/* model_granite.c - Granite 3: Llama with factors on embeddings, blocks, scores and logits. */
#include "model/granite.h"

#include "base/err.h"
#include "base/json.h"

static int read_granite(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	TRY(json_opt_bool(j, where, "mlp_bias", &c->mlp_bias, e));
	return granite_read(j, where, c, e);
}

static const char *const types[] = { "granite", NULL };
static const char *const keys[] = { GRANITE_KEYS, "mlp_bias", NULL };

const struct model_family model_granite = { .name = "granite",
					    .help = "Granite 3 (dense)",
					    .model_types = types,
					    .keys = keys,
					    .read = read_granite };
