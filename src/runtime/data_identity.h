/* SPDX-License-Identifier: Apache-2.0 */
/* data_identity.h - what the tokens of a job follow from beside its data: tokenizer and chat
 * template (data/prepared.h). */
#ifndef HS_RUNTIME_DATA_IDENTITY_H
#define HS_RUNTIME_DATA_IDENTITY_H

#include "base/buf.h"
#include "file/model_file.h"

struct err;

/* Appends it. `chat_template`: of the configuration; MAY be NULL. */
int data_identity(struct model_file *f, const char *chat_template, struct buf *b, struct err *e);

#endif
