/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h - chat templates: messages to text, in which the trained parts are marked.
 *
 * A template is the model's own Jinja text (chat_from_jinja()), or a row of chat.def: chatml,
 * llama3, mistral, zephyr, alpaca, plain (<|user|> / <|assistant|>). chat_detect() recognises a row
 * from the model's Jinja template and its special tokens. */
#ifndef HS_DATA_CHAT_H
#define HS_DATA_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct json_t;
struct tokenizer;
struct tokens;

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_message {
	enum chat_role role;
	const char *text;
	size_t n;
	bool train; /* its text (and the token that ends its turn) is trained */
	/* MAY, for Jinja templates: the turn with its other keys (tool_calls, name, ...); and what
	 * the first message has for all: the list of tools, and an object of further variables */
	const struct json_t *turn, *tools, *args;
};

struct chat_template;

const struct chat_template *chat_find(const char *name); /* NULL: no such template */
const char *chat_name(const struct chat_template *t);
/* NULL when no template matches. `jinja` may be NULL. */
const struct chat_template *chat_detect(const char *jinja, const struct tokenizer *tok);
/* Comma-separated names, for messages and help. */
const char *chat_names(void);

/* From the text of a Jinja template (chat_jinja.c). The name is CHAT_JINJA. chat_free() ends it; it
 * does nothing to a row, and NULL is allowed. */
#define CHAT_JINJA "tokenizer_default"
int chat_from_jinja(const char *text, const struct tokenizer *tok, const struct chat_template **t_p,
		    struct err *e);
void chat_free(const struct chat_template *t);
/* Whether the template can show tools and their calls. */
bool chat_has_tools(const struct chat_template *t);

/* Appends the conversation's ids to `ids` and, for each, whether it is trained to `train` (0/1;
 * same length; `train` may be NULL). Template text may become special tokens; message text
 * never does. With `open`, the head of an assistant turn is added at the end, for generation.
 * Adds the default system message only where the model's own template does (SmolLM2 and Qwen2.5
 * chatml do). */
int chat_encode(const struct chat_template *t, const struct tokenizer *tok,
		const struct chat_message *msg, size_t n, bool open, struct tokens *ids,
		struct tokens *train, struct err *e);
/* Ids that end an assistant turn (beside EOS): returns how many, at most `cap`. */
size_t chat_stops(const struct chat_template *t, const struct tokenizer *tok, int32_t *id,
		  size_t cap);

#endif
