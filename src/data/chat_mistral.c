/* SPDX-License-Identifier: Apache-2.0 */
/* chat_mistral.c - Mistral Instruct v0.1 to v0.3, whose published templates differ in spaces and in
 * the place of the system message.
 *
 * The older templates refuse a system message; here it is put before the first user message, as the
 * newer templates of the same models do. */
#include "base/err.h"
#include "data/chat_text.h"

#include <string.h>

enum system_place { SYSTEM_FIRST, SYSTEM_LAST_MESSAGE, SYSTEM_LAST_USER };

/* By `variant`. AUTO: V3_LAST_USER where [INST] is a token, else V1. */
enum { AUTO, V1, V3, V3_LAST_USER, V3_TRIM, V3_TRIM_LAST_USER, OLD, OLD_SPACED };

static const struct form {
	/* around the user's message, around the answer */
	const char *open, *close, *before, *after;
	bool trim; /* the answer */
	enum system_place system;
} forms[] = {
	[V1] = { " [INST] ", " [/INST]", " ", "", false, SYSTEM_FIRST },
	[V3] = { "[INST] ", "[/INST]", " ", "", false, SYSTEM_LAST_MESSAGE },
	[V3_LAST_USER] = { "[INST] ", "[/INST]", " ", "", false, SYSTEM_LAST_USER },
	[V3_TRIM] = { "[INST] ", "[/INST]", " ", "", true, SYSTEM_LAST_MESSAGE },
	[V3_TRIM_LAST_USER] = { "[INST] ", "[/INST]", " ", "", true, SYSTEM_LAST_USER },
	[OLD] = { "[INST] ", " [/INST]", "", "", false, SYSTEM_FIRST },
	[OLD_SPACED] = { "[INST] ", " [/INST]", "", " ", false, SYSTEM_FIRST },
};

static int mistral_render(const struct chat_template *t, const struct tokenizer *tok,
			  const struct chat_message *msg, size_t n, bool open, struct chat_text *o,
			  struct err *e)
{
	(void)open; /* the end of the user's message is the head of the answer */
	const struct form *f = &forms[t->variant != AUTO                 ? t->variant
				      : tokenizer_id(tok, "[INST]") >= 0 ? V3_LAST_USER
									 : V1];
	const struct chat_message *system = n && msg[0].role == CHAT_SYSTEM ? &msg[0] : NULL;
	size_t first = system ? 1 : 0, place = n;
	if (system && f->system == SYSTEM_LAST_MESSAGE)
		place = n - 1;
	for (size_t i = first; system && f->system != SYSTEM_LAST_MESSAGE && i < n; i++)
		if (msg[i].role == CHAT_USER) {
			place = i;
			if (f->system == SYSTEM_FIRST)
				break;
		}
	chat_put(o, chat_bos(tok));
	for (size_t i = first; i < n; i++) {
		if (msg[i].role == CHAT_ASSISTANT) {
			chat_put(o, f->before);
			if (f->trim)
				chat_put_trimmed(o, &msg[i]);
			else
				chat_put_message(o, &msg[i]);
			chat_put_end(o, chat_eos(tok), msg[i].train);
			chat_put(o, f->after);
			continue;
		}
		if (msg[i].role != CHAT_USER)
			return err_set(
				e, ERR_UNSUPPORTED,
				"the chat template '%s' takes no message of the role '%s' here",
				t->name, chat_role_name(msg[i].role));
		chat_put(o, f->open);
		if (i == place) {
			chat_put_message(o, system);
			chat_put(o, "\n\n");
		}
		chat_put_message(o, &msg[i]);
		chat_put(o, f->close);
	}
	return 0;
}

static const struct chat_template *mistral_detect(const char *jinja, const struct tokenizer *tok);

#define ROW(variant_)                                                                              \
	{                                                                                          \
		.name = "mistral", .variant = variant_, .needs_eos = true,                         \
		.detect = mistral_detect, .render = mistral_render                                 \
	}

const struct chat_template chat_template_mistral = ROW(AUTO);
static const struct chat_template variants[] = {
	[V1] = ROW(V1),
	[V3] = ROW(V3),
	[V3_LAST_USER] = ROW(V3_LAST_USER),
	[V3_TRIM] = ROW(V3_TRIM),
	[V3_TRIM_LAST_USER] = ROW(V3_TRIM_LAST_USER),
	[OLD] = ROW(OLD),
	[OLD_SPACED] = ROW(OLD_SPACED),
};

/* A string literal of Jinja, in either quotes. */
static bool has_literal(const char *jinja, const char *text)
{
	size_t n = strlen(text);
	for (const char *p = jinja; (p = strstr(p, text)); p++)
		if (p > jinja && (p[-1] == '"' || p[-1] == '\'') && p[n] == p[-1])
			return true;
	return false;
}

static const struct chat_template *mistral_detect(const char *jinja, const struct tokenizer *tok)
{
	(void)tok;
	/* Llama 2's template has [INST] too, with its <<SYS>>; later ones of Mistral's have turns
	 * for the system. */
	if (!jinja || strstr(jinja, "<<SYS>>") || strstr(jinja, "[SYSTEM_PROMPT]"))
		return NULL;
	if (has_literal(jinja, " [INST] ") && has_literal(jinja, " [/INST]"))
		return &variants[V1];
	if (!has_literal(jinja, "[INST] "))
		return NULL;
	if (has_literal(jinja, " [/INST]"))
		return &variants[strstr(jinja, "eos_token + ' '") ? OLD_SPACED : OLD];
	if (!has_literal(jinja, "[/INST]"))
		return NULL;
	bool trim = strstr(jinja, "|trim + eos_token") || strstr(jinja, "| trim + eos_token");
	bool last_user = strstr(jinja, "loop.last and system_message is defined") == NULL;
	return &variants[trim        ? last_user ? V3_TRIM_LAST_USER : V3_TRIM
			 : last_user ? V3_LAST_USER
				     : V3];
}
