/* SPDX-License-Identifier: Apache-2.0 */
/* preference.h - records of preferences: a prompt with a chosen and a rejected answer, or with one
 * answer and a label whether it is wanted.
 *
 * The type of such a dataset is TEMPLATE.KIND, as in axolotl: TEMPLATE is a row of chat.def, or
 * `chat_template` for the model's own; KIND says under which keys prompt and answers are
 * (preference.c has the table). `passthrough.default` and `user_defined.default` have no template:
 * prompt and answer are text, as in the kind `completion`. `auto` tries all keys. */
#ifndef HS_DATA_PREFERENCE_H
#define HS_DATA_PREFERENCE_H

#include "data/dataset_kind.h"

struct preference_type {
	const struct preference_kind *kind;
	const struct chat_template *chat; /* NULL: that of the options */
	bool raw;
};

/* `type` may be NULL. */
int preference_type(const struct dataset_source *src, struct preference_type *t_p, struct err *e);
/* Leaves the two sequences (with PREFER_SINGLE: the one) in x->ids, one after the other, and
 * x->cut, answer[], good. */
int preference_encode(struct encoding *x, const struct dataset_source *src,
		      const struct preference_type *t, const json_t *rec, struct err *e);

#endif
