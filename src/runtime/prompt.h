/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.h - what a model is asked, as token ids. */
#ifndef HS_RUNTIME_PROMPT_H
#define HS_RUNTIME_PROMPT_H

#include "data/chat.h"
#include "data/tokenizer.h"

#include <stdbool.h>

struct err;

struct prompt {
	const char *system; /* NULL: no system message */
	const char *text;
	size_t n;
	bool raw; /* the text itself, to be continued; else a user's message */
};

/* ERR_USAGE without a chat template (`chat` NULL), unless it is raw. */
int prompt_encode(const struct prompt *p, const struct chat_template *chat,
		  const struct tokenizer *tok, struct tokens *ids, struct err *e);
int prompt_no_template(struct err *e);

#endif
