/* SPDX-License-Identifier: Apache-2.0 */
/* fake_tokenizer.h - a tokenizer and a chat template simple enough to read: ids are the bytes of
 * the text, FAKE_BOS and FAKE_EOS stand around it, a turn is FAKE_TURN + role, the text, FAKE_END;
 * before the text stand the turn's `reasoning_content`, the name of its first call, and the
 * variable `note`. "<^>" and "<$>" name special tokens; "_c" is one token. Definitions, not
 * declarations: a test program that includes this is linked with these instead of the library's. */
#ifndef HS_TESTS_FAKE_TOKENIZER_H
#define HS_TESTS_FAKE_TOKENIZER_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat.h"
#include "data/tokenizer.h"

#include <string.h>

enum { FAKE_BOS = 256, FAKE_EOS = 257, FAKE_END = 258, FAKE_PAIR = 259, FAKE_TURN = 260 };

struct tokenizer {
	bool no_bos, no_eos;
};

struct chat_template {
	const char *name;
	bool tools;
};

void tokens_release(struct tokens *t)
{
	mem_free(t->id);
	*t = (struct tokens){ 0 };
}

int tokens_add(struct tokens *t, int32_t id, struct err *e)
{
	if (!mem_grow(&t->id, &t->cap, t->n + 1, sizeof *t->id))
		return err_nomem(e, (t->n + 1) * sizeof *t->id, "tokens");
	t->id[t->n++] = id;
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool add_special,
		     bool parse_special, struct tokens *out, struct err *e)
{
	static const struct {
		const char *text;
		int32_t id;
	} whole[] = { { "_c", FAKE_PAIR }, { "<^>", FAKE_BOS }, { "<$>", FAKE_EOS } };
	if (add_special && !t->no_bos)
		TRY(tokens_add(out, FAKE_BOS, e));
	for (size_t i = 0; i < n; i++) {
		int32_t id = (uint8_t)text[i];
		for (size_t k = 0; k < (parse_special ? ARRAY_LEN(whole) : 1); k++) {
			const size_t len = strlen(whole[k].text);
			if (n - i < len || memcmp(text + i, whole[k].text, len))
				continue;
			id = whole[k].id;
			i += len - 1;
			break;
		}
		TRY(tokens_add(out, id, e));
	}
	return 0;
}

size_t tokenizer_vocab_size(const struct tokenizer *t)
{
	(void)t;
	return 300;
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->no_bos ? -1 : FAKE_BOS; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->no_eos ? -1 : FAKE_EOS; }
const char *chat_name(const struct chat_template *t) { return t->name; }
static const struct chat_template fake_template = { .name = "fake" };
const struct chat_template *chat_find(const char *name)
{
	return strcmp(name, "fake") ? NULL : &fake_template;
}
const char *chat_names(void) { return "fake, alpaca"; }
bool chat_has_tools(const struct chat_template *t) { return t->tools; }

int chat_encode(const struct chat_template *t, const struct tokenizer *tok,
		const struct chat_message *msg, size_t n, bool open, struct tokens *ids,
		struct tokens *train, struct err *e)
{
	(void)t;
	(void)open;
	for (size_t i = 0; i < n; i++) {
		TRY(tokens_add(ids, FAKE_TURN + msg[i].role, e));
		TRY(tokens_add(train, 0, e));
		const char *more[] = {
			json_string_value(json_object_get(msg[i].turn, "reasoning_content")),
			json_string_value(json_object_get(
				json_array_get(json_object_get(msg[i].turn, "tool_calls"), 0),
				"name")),
			json_string_value(json_object_get(msg[i].args, "note"))
		};
		for (size_t k = 0; k < ARRAY_LEN(more); k++)
			if (more[k])
				TRY(tokenizer_encode(tok, more[k], strlen(more[k]), false, false,
						     ids, e));
		TRY(tokenizer_encode(tok, msg[i].text, msg[i].n, false, false, ids, e));
		TRY(tokens_add(ids, FAKE_END, e));
		while (train->n < ids->n)
			TRY(tokens_add(train, msg[i].train, e));
	}
	return 0;
}

#endif
