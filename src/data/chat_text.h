/* SPDX-License-Identifier: Apache-2.0 */
/* chat_text.h - the text that templates (chat_<name>.c) write, and the struct of a template.
 *
 * A template writes the text that the model's own Jinja template renders, and states for each part
 * whether it is a message (in which special tokens are not recognised) and whether it is trained.
 * chat.c encodes that. */
#ifndef HS_DATA_CHAT_TEXT_H
#define HS_DATA_CHAT_TEXT_H

#include "base/buf.h"
#include "data/chat.h"
#include "data/tokenizer.h"

struct chat_span {
	size_t begin, end;
	bool message, train;
};

struct chat_text {
	struct buf text;
	struct chat_span *span;
	size_t n, cap;
	bool failed; /* memory ran out */
	bool head;   /* the tokenizer's own first tokens (BOS) go before the text */
};

struct chat_template {
	const char *name;
	/* of chat_from_jinja() */
	bool tools;
	void (*release)(const struct chat_template *t);
	int variant;          /* the template's own */
	const char *system;   /* system message of conversations without one; NULL: none */
	const char *needs[4]; /* tokens that the template cannot do without; NULL ends */
	bool needs_eos;
	const char *stop[4]; /* tokens that end a turn; NULL ends */
	/* This template or a variant of it, when it is the one of the Jinja text (NULL: there is
	 * none) or of the tokens; else NULL. */
	const struct chat_template *(*detect)(const char *jinja, const struct tokenizer *tok);
	int (*render)(const struct chat_template *t, const struct tokenizer *tok,
		      const struct chat_message *msg, size_t n, bool open, struct chat_text *out,
		      struct err *e);
};

#define CHAT(name) extern const struct chat_template chat_template_##name;
#include "data/chat.def"
#undef CHAT

/* any text */
void chat_put_span(struct chat_text *o, const char *p, size_t n, bool message, bool train);
/* the template's own text */
void chat_put(struct chat_text *o, const char *text);
/* the same, trained with the message before it */
void chat_put_end(struct chat_text *o, const char *text, bool train);
void chat_put_message(struct chat_text *o, const struct chat_message *m); /* a message as it is */
/* without white space around it, as Jinja's `trim` */
void chat_put_trimmed(struct chat_text *o, const struct chat_message *m);
/* "system", "user", "assistant", "tool" */
const char *chat_role_name(enum chat_role r);
/* text of the token; "" when there is none */
const char *chat_bos(const struct tokenizer *tok);
const char *chat_eos(const struct tokenizer *tok);
/* Renders without encoding, for tests. */
int chat_render(const struct chat_template *t, const struct tokenizer *tok,
		const struct chat_message *msg, size_t n, bool open, struct chat_text *out,
		struct err *e);
void chat_text_release(struct chat_text *o);

#endif
