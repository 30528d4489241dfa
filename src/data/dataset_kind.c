/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_kind.c - see dataset_kind.h: what the kinds read records and make marks with. */
#include "data/dataset_kind.h"

#include "base/err.h"

#include <string.h>

bool record_has(const json_t *rec, const char *key)
{
	const json_t *v = json_object_get(rec, key);
	return v && !json_is_null(v);
}

int record_text(const json_t *rec, const char *key, bool need, const char **text_p, size_t *n_p,
		struct err *e)
{
	const json_t *v = json_object_get(rec, key);
	if (!v || json_is_null(v))
		return need ? err_set(e, ERR_INPUT, "%s: is %s; a string was expected", key,
				      json_kind_name(v))
			    : 0;
	if (!json_is_string(v))
		return err_set(e, ERR_INPUT, "%s: must be a string, not %s", key,
			       json_kind_name(v));
	*text_p = json_string_value(v);
	*n_p = json_string_length(v);
	return 0;
}

bool text_is_blank(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r\n", text[i]) || !text[i])
			return false;
	return true;
}

int encoding_text(const struct encoding *x, const char *text, size_t n, struct tokens *ids,
		  struct err *e)
{
	const size_t at = ids->n;
	const int32_t bos = tokenizer_bos(x->o->tok);
	TRY(tokenizer_encode(x->o->tok, text, n, true, true, ids, e));
	if (bos < 0 || ids->n < at + 2 || ids->id[at] != bos || ids->id[at + 1] != bos)
		return 0;
	ids->n--;
	memmove(ids->id + at, ids->id + at + 1, (ids->n - at) * sizeof *ids->id);
	return 0;
}

int encoding_mark(struct encoding *x, bool train, struct err *e)
{
	while (x->train.n < x->ids.n)
		TRY(tokens_add(&x->train, train, e));
	return 0;
}

int encoding_end(struct encoding *x, bool train, struct err *e)
{
	int32_t eos = tokenizer_eos(x->o->tok);
	if (eos < 0 || (x->ids.n && x->ids.id[x->ids.n - 1] == eos))
		return 0;
	TRY(tokens_add(&x->ids, eos, e));
	return encoding_mark(x, train, e);
}
