/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h - the turns of a conversation: collected from a record, checked, and encoded with the
 * model's chat template. Shared by the kinds alpaca, sharegpt and messages.
 *
 * By default the turns of x->roles are trained, the assistant's. A turn's own `train` (true or
 * false) or `weight` (1 or 0) overrides that. With train_on_inputs every id is trained, or, where
 * turns have marks of their own, every turn that is not excluded. */
#ifndef HS_DATA_TURNS_H
#define HS_DATA_TURNS_H

#include "data/dataset_kind.h"

/* Roles by their names, "user,assistant", as bits; NULL: those of the assistant. */
int turns_roles(const char *names, unsigned *roles_p, struct err *e);
/* Appends one turn; the text is borrowed until the record is encoded. */
int turns_add(struct encoding *x, enum chat_role role, const char *text, size_t n, struct err *e);
/* The record's list `key` of {"role" or "from", "content" or "value"}. */
int turns_add_list(struct encoding *x, const json_t *rec, const char *key, struct err *e);
/* The record's own `system`, as the first turn, where it is not blank; its `tools`, which are an
 * error for a template that does not show them; and its `chat_template_kwargs`. */
int turns_begin(struct encoding *x, const json_t *rec, struct err *e);
/* Through the chat template, with the marks. `answer`: the key of the answer, for the message that
 * it is missing. */
int turns_encode(struct encoding *x, const char *answer, struct err *e);

#endif
