/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - see prompt.h. */
#include "runtime/prompt.h"

#include "base/err.h"
#include "data/axolotl_chat.h"

#include <string.h>

int prompt_no_template(struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "the model's chat template was not recognised: name one with "
		       "--chat-template (%s, %s), or use --raw",
		       chat_names(), axolotl_chat_names());
}

int prompt_encode(const struct prompt *p, const struct chat_template *chat,
		  const struct tokenizer *tok, struct tokens *ids, struct err *e)
{
	struct chat_message m[2];
	size_t count = 0;
	if (p->raw)
		return tokenizer_encode(tok, p->text, p->n, true, true, ids, e);
	if (!chat)
		return prompt_no_template(e);
	if (p->system)
		m[count++] = (struct chat_message){ .role = CHAT_SYSTEM,
						    .text = p->system,
						    .n = strlen(p->system) };
	m[count++] = (struct chat_message){ .role = CHAT_USER, .text = p->text, .n = p->n };
	return chat_encode(chat, tok, m, count, true, ids, NULL, e);
}
