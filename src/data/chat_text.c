/* SPDX-License-Identifier: Apache-2.0 */
/* chat_text.c - see chat_text.h: what templates write their text with, and rendering. */
#include "data/chat_text.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/jinja_value.h"

#include <string.h>

void chat_put_span(struct chat_text *o, const char *p, size_t n, bool message, bool train)
{
	if (!n)
		return;
	struct chat_span s = { o->text.n, o->text.n + n, message, train };
	buf_add(&o->text, p, n);
	struct chat_span *last = o->n ? &o->span[o->n - 1] : NULL;
	if (last && last->message == message && last->train == train)
		last->end = s.end;
	else if (mem_grow(&o->span, &o->cap, o->n + 1, sizeof *o->span))
		o->span[o->n++] = s;
	else
		o->failed = true;
}

void chat_put(struct chat_text *o, const char *text)
{
	chat_put_span(o, text, strlen(text), false, false);
}
void chat_put_end(struct chat_text *o, const char *text, bool train)
{
	chat_put_span(o, text, strlen(text), false, train);
}
void chat_put_message(struct chat_text *o, const struct chat_message *m)
{
	chat_put_span(o, m->text, m->n, true, m->train);
}

void chat_put_trimmed(struct chat_text *o, const struct chat_message *m)
{
	const char *p = m->text;
	size_t n = m->n, k;
	for (; (k = js_space(p, n, false)) > 0; n -= k)
		p += k;
	while ((k = js_space(p, n, true)) > 0)
		n -= k;
	chat_put_span(o, p, n, true, m->train);
}

const char *chat_role_name(enum chat_role r)
{
	static const char *const names[] = { "system", "user", "assistant", "tool" };
	return names[r];
}

static const char *token_text(const struct tokenizer *tok, int32_t id)
{
	const char *s = id >= 0 ? tokenizer_token(tok, id) : NULL;
	return s ? s : "";
}

const char *chat_bos(const struct tokenizer *tok) { return token_text(tok, tokenizer_bos(tok)); }
const char *chat_eos(const struct tokenizer *tok) { return token_text(tok, tokenizer_eos(tok)); }

void chat_text_release(struct chat_text *o)
{
	buf_release(&o->text);
	mem_free(o->span);
	o->span = NULL;
	o->n = o->cap = 0;
}

int chat_render(const struct chat_template *t, const struct tokenizer *tok,
		const struct chat_message *msg, size_t n, bool open, struct chat_text *out,
		struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(t->needs) && t->needs[i]; i++)
		if (tokenizer_id(tok, t->needs[i]) < 0)
			return err_set(e, ERR_INPUT,
				       "the chat template '%s' needs the token '%s', which this "
				       "model does not have",
				       t->name, t->needs[i]);
	if (t->needs_eos && tokenizer_eos(tok) < 0)
		return err_set(e, ERR_INPUT,
			       "the chat template '%s' needs an end-of-sequence token, which this "
			       "model does not name",
			       t->name);
	TRY(t->render(t, tok, msg, n, open, out, e));
	if (out->failed)
		return err_nomem(e, out->n * sizeof *out->span, "a conversation");
	return buf_ok(&out->text, e);
}
