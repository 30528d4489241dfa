/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_sharegpt.c - the kind `sharegpt`: {"conversations": [{"from": "human", "value": ...},
 * {"from": "gpt", "value": ...}], "system": ...}. Roles function_call and observation are the
 * assistant's call of a tool and the tool's answer. */
#include "base/err.h"
#include "data/turns.h"

static const char *list_key(const json_t *rec)
{
	return !json_object_get(rec, "conversations") && json_object_get(rec, "conversation")
		       ? "conversation"
		       : "conversations";
}

static bool match(const json_t *rec) { return json_is_array(json_object_get(rec, list_key(rec))); }

static int encode(struct encoding *x, const json_t *rec, struct err *e)
{
	const char *key = list_key(rec);
	TRY(turns_begin(x, rec, e));
	TRY(turns_add_list(x, rec, key, e));
	return turns_encode(x, key, e);
}

const struct dataset_kind dataset_kind_sharegpt = {
	.name = "sharegpt", .keys = "conversations", .match = match, .encode = encode
};
