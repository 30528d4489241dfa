/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_completion.c - the kind `completion`: {"prompt": ..., "completion": ...}, no chat
 * template, EOS after the completion.
 *
 * Prompt and completion are encoded as one text, as they would be in a document. The ids after
 * those that the prompt alone would have are trained; an id that spans the border is trained.
 *
 * Where both are lists of turns, as TRL has them, they are one conversation, in which the turns of
 * the completion are trained. */
#include "base/err.h"
#include "data/turns.h"

#include <string.h>

static bool match(const json_t *rec)
{
	return json_object_get(rec, "prompt") && !json_object_get(rec, "chosen") &&
	       !json_object_get(rec, "messages");
}

static int encode_turns(struct encoding *x, const json_t *rec, struct err *e)
{
	const unsigned roles = x->roles;
	TRY(turns_begin(x, rec, e));
	x->roles = 0;
	const int rc = turns_add_list(x, rec, "prompt", e);
	x->roles = roles;
	TRY(rc);
	TRY(turns_add_list(x, rec, "completion", e));
	return turns_encode(x, "completion", e);
}

static int encode(struct encoding *x, const json_t *rec, struct err *e)
{
	if (json_is_array(json_object_get(rec, "prompt")) &&
	    json_is_array(json_object_get(rec, "completion")))
		return encode_turns(x, rec, e);
	const char *prompt = "", *completion = "";
	size_t np = 0, nc = 0;
	TRY(record_text(rec, "prompt", true, &prompt, &np, e));
	TRY(record_text(rec, "completion", true, &completion, &nc, e));
	if (text_is_blank(completion, nc))
		return err_set(e, ERR_INPUT, "completion: the answer is empty");
	char *joined = arena_alloc(&x->scratch, np + nc + 1);
	if (!joined)
		return err_nomem(e, np + nc + 1, "a record");
	memcpy(joined, prompt, np);
	memcpy(joined + np, completion, nc);

	/* `train` holds the ids of the prompt alone until the border is found. */
	TRY(encoding_text(x, joined, np, &x->train, e));
	TRY(encoding_text(x, joined, np + nc, &x->ids, e));
	size_t same = 0, most = x->train.n < x->ids.n ? x->train.n : x->ids.n;
	while (same < most && x->train.id[same] == x->ids.id[same])
		same++;
	x->train.n = 0;
	for (size_t i = 0; i < same; i++)
		TRY(tokens_add(&x->train, x->o->train_on_inputs, e));
	TRY(encoding_mark(x, true, e));
	return encoding_end(x, true, e);
}

const struct dataset_kind dataset_kind_completion = {
	.name = "completion", .keys = "prompt, completion", .match = match, .encode = encode
};
