/* SPDX-License-Identifier: Apache-2.0 */
/* chat_plain.c - the plain template for base models: <|user|> and <|assistant|> as words, answers
 * closed by EOS. It belongs to no model, so it is never recognised, only chosen by name. */
#include "data/chat_text.h"

static int plain_render(const struct chat_template *t, const struct tokenizer *tok,
			const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			struct err *e)
{
	(void)t;
	(void)e;
	o->head = true;
	for (size_t i = 0; i < n; i++) {
		chat_put(o, "<|");
		chat_put(o, chat_role_name(msg[i].role));
		chat_put(o, "|>\n");
		chat_put_message(o, &msg[i]);
		if (msg[i].role == CHAT_ASSISTANT)
			chat_put_end(o, chat_eos(tok), msg[i].train);
		chat_put(o, "\n");
	}
	if (open)
		chat_put(o, "<|assistant|>\n");
	return 0;
}

static const struct chat_template *plain_detect(const char *jinja, const struct tokenizer *tok)
{
	(void)jinja;
	(void)tok;
	return NULL;
}

const struct chat_template chat_template_plain = {
	.name = "plain",
	.needs_eos = true,
	.detect = plain_detect,
	.render = plain_render,
};
