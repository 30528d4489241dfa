/* SPDX-License-Identifier: Apache-2.0 */
/* chat_zephyr.c - Zephyr and TinyLlama-Chat: <|user|> and <|assistant|> on lines of their own, each
 * turn closed by EOS. */
#include "data/chat_text.h"

#include "base/err.h"

#include <string.h>

static int zephyr_render(const struct chat_template *t, const struct tokenizer *tok,
			 const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			 struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		if (msg[i].role == CHAT_TOOL)
			return err_set(e, ERR_UNSUPPORTED,
				       "the chat template '%s' has no role for tools", t->name);
		chat_put(o, "<|");
		chat_put(o, chat_role_name(msg[i].role));
		chat_put(o, "|>\n");
		chat_put_message(o, &msg[i]);
		chat_put_end(o, chat_eos(tok), msg[i].train);
		chat_put(o, "\n");
	}
	if (open)
		chat_put(o, "<|assistant|>\n");
	return 0;
}

static const struct chat_template *zephyr_detect(const char *jinja, const struct tokenizer *tok)
{
	(void)tok;
	/* Phi's templates have the same role marks, closed by <|end|>. */
	if (!jinja || !strstr(jinja, "<|user|>") || !strstr(jinja, "<|assistant|>") ||
	    !strstr(jinja, "eos_token") || strstr(jinja, "<|end|>"))
		return NULL;
	return &chat_template_zephyr;
}

const struct chat_template chat_template_zephyr = {
	.name = "zephyr",
	.needs_eos = true,
	.detect = zephyr_detect,
	.render = zephyr_render,
};
