/* SPDX-License-Identifier: Apache-2.0 */
/* chat_alpaca.c - Stanford Alpaca's prompt for models without a template of their own: ###
 * Instruction, ### Response, EOS. */
#include "data/chat_text.h"

#include <string.h>

static int alpaca_render(const struct chat_template *t, const struct tokenizer *tok,
			 const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			 struct err *e)
{
	(void)t;
	(void)e;
	o->head = true;
	if (n && msg[0].role == CHAT_SYSTEM)
		chat_put_message(o, &msg[0]);
	else
		chat_put(o, "Below is an instruction that describes a task. Write a response that "
			    "appropriately completes the "
			    "request.");
	for (size_t i = n && msg[0].role == CHAT_SYSTEM ? 1 : 0; i < n; i++) {
		static const char *const head[] = {
			[CHAT_SYSTEM] = "\n\n### System:\n",
			[CHAT_USER] = "\n\n### Instruction:\n",
			[CHAT_ASSISTANT] = "\n\n### Response:\n",
			[CHAT_TOOL] = "\n\n### Input:\n",
		};
		chat_put(o, head[msg[i].role]);
		chat_put_message(o, &msg[i]);
		if (msg[i].role == CHAT_ASSISTANT)
			chat_put_end(o, chat_eos(tok), msg[i].train);
	}
	if (open)
		chat_put(o, "\n\n### Response:\n");
	return 0;
}

static const struct chat_template *alpaca_detect(const char *jinja, const struct tokenizer *tok)
{
	(void)tok;
	return jinja && strstr(jinja, "### Instruction:") && strstr(jinja, "### Response:")
		       ? &chat_template_alpaca
		       : NULL;
}

const struct chat_template chat_template_alpaca = {
	.name = "alpaca",
	.needs_eos = true,
	.detect = alpaca_detect,
	.render = alpaca_render,
};
