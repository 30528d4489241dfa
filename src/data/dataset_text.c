/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_text.c - the kind `text`: {"text": ...} or a whole plain text file, everything is
 * trained, BOS is added as the model does, EOS at the end. A text longer than sequence_len becomes
 * several examples. */
#include "base/err.h"
#include "data/dataset_kind.h"

static bool match(const json_t *rec) { return json_object_get(rec, "text"); }

static int encode_plain(struct encoding *x, const char *text, size_t n, struct err *e)
{
	if (text_is_blank(text, n))
		return err_set(e, ERR_INPUT, "text: is empty");
	TRY(encoding_text(x, text, n, &x->ids, e));
	TRY(encoding_mark(x, true, e));
	return encoding_end(x, true, e);
}

static int encode(struct encoding *x, const json_t *rec, struct err *e)
{
	const char *text = "";
	size_t n = 0;
	TRY(record_text(rec, "text", true, &text, &n, e));
	return encode_plain(x, text, n, e);
}

const struct dataset_kind dataset_kind_text = { .name = "text",
						.keys = "text",
						.split = true,
						.match = match,
						.encode = encode,
						.plain = encode_plain };
