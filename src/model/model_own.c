/* SPDX-License-Identifier: Apache-2.0 */
/* model_own.c - a model of one's own: config.json has the text of its blocks (own_text.h) under
 * `blocks`, and under `kinds` the hashes of what blocks do that are no rows of own.def. */
#include "model/model.h"

#include "base/err.h"
#include "base/json.h"
#include "model/own.h"
#include "model/own_text.h"

#include <string.h>

/* Blocks that are code of somebody's: the same code must be here. */
static int check_kind(const struct own_kind *k, const json_t *hashes, const char *where,
		      struct err *e)
{
	const char *must = json_string_value(json_object_get(hashes, k->name));
	if (!k->hash || (must && !strcmp(must, k->hash)))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "%s: the block '%s' of this program is another one than the model's (%.16s "
		       "here, %.16s there): use the same plugin on every machine",
		       where, k->name, k->hash, must ? must : "none");
}

static int read_own(const json_t *j, const char *where, struct model_config *c, struct err *e)
{
	const char *text;
	const json_t *kinds = json_object_get(j, "kinds");
	TRY(json_need_str(j, where, "blocks", &text, e));
	TRY(own_read(text, strlen(text), where, &c->own, e));
	const struct own_model *m = &c->own;
	for (int i = 0; i < m->n; i++)
		TRY(check_kind(m->block[i].kind, kinds, where, e));
	TRY(check_kind(m->loss.kind, kinds, where, e));
	for (int i = 0; i < m->n; i += 1 + m->block[i].inside)
		c->layers++;
	c->hidden = own_count(&m->input);
	c->vocab = m->tokens ? m->tokens : 1;
	c->heads = c->kv_heads = c->head_dim = 1;
	return 0;
}

static const char *const types[] = { "heteroshard", NULL };
static const char *const keys[] = { "blocks", "kinds", NULL };

const struct model_family model_own = { .name = "own",
					.help = "people's own models: a list of blocks",
					.model_types = types,
					.keys = keys,
					.read = read_own,
					.own = true };
