/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_messages.c - the kind `messages`: {"messages": [{"role": ..., "content": ...}, ...]}, as
 * OpenAI and Hugging Face write conversations. Content is a string or a list of {"type": "text",
 * "text": ...}. */
#include "base/err.h"
#include "data/turns.h"

static bool match(const json_t *rec) { return json_is_array(json_object_get(rec, "messages")); }

static int encode(struct encoding *x, const json_t *rec, struct err *e)
{
	TRY(turns_begin(x, rec, e));
	TRY(turns_add_list(x, rec, "messages", e));
	return turns_encode(x, "messages", e);
}

const struct dataset_kind dataset_kind_messages = {
	.name = "messages", .keys = "messages", .match = match, .encode = encode
};
