/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer from anywhere and a text: it is read or refused with one line; what it encodes are
 * ids of its own, which decode, alone and in a conversation. The input is a tokenizer.json or a
 * GGUF's KV pairs as JSON, then the byte 0xff, then the text. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "data/chat.h"
#include "data/tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(int rc, const struct err *e)
{
	if (!e->msg[0] || strchr(e->msg, '\n') || rc != e->code)
		abort();
}

static void check_ids(const struct tokenizer *t, const struct tokens *ids)
{
	struct err e = { 0 };
	struct buf text = BUF_INIT;
	for (size_t i = 0; i < ids->n; i++)
		if (!tokenizer_token(t, ids->id[i]))
			abort();
	for (int skip = 0; skip < 2; skip++)
		if (tokenizer_decode(t, ids->id, ids->n, skip, &text, &e) < 0)
			abort();
	buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint8_t *mark = memchr(data, 0xff, n);
	const char *text = mark ? (const char *)mark + 1 : "some text <s> 12";
	size_t njson = mark ? (size_t)(mark - data) : n,
	       ntext = mark ? n - njson - 1 : strlen(text);
	struct err e = { 0 };
	json_t *doc = NULL;
	struct tokenizer *t = NULL;
	int rc = json_parse_text((const char *)data, njson, "fuzz.json", &doc, &e);
	if (rc < 0) {
		check_error(rc, &e);
		return 0;
	}
	rc = json_object_get(doc, "tokenizer.ggml.model")
		     ? tokenizer_from_gguf(doc, "fuzz.gguf", &t, &e)
		     : tokenizer_from_json(doc, json_object_get(doc, "config"), "fuzz.json", &t,
					   &e);
	json_decref(doc);
	if (rc < 0) {
		check_error(rc, &e);
		return 0;
	}
	for (int flags = 0; flags < 4; flags++) {
		struct tokens ids = { 0 };
		rc = tokenizer_encode(t, text, ntext, flags & 1, flags & 2, &ids, &e);
		if (rc < 0)
			check_error(rc, &e);
		check_ids(t, &ids);
		tokens_release(&ids);
	}
	const struct chat_template *chat =
		chat_detect(ntext && text[0] ? NULL : "'[INST] ' ' [/INST]'", t);
	if (!chat)
		chat = chat_find(tokenizer_eos(t) >= 0 ? "plain" : "llama3");
	const struct chat_message m[2] = { { CHAT_USER, text, ntext / 2, false },
					   { CHAT_ASSISTANT, text + ntext / 2, ntext - ntext / 2,
					     true } };
	struct tokens ids = { 0 }, train = { 0 };
	rc = chat_encode(chat, t, m, 2, true, &ids, &train, &e);
	if (rc < 0)
		check_error(rc, &e);
	if (ids.n != train.n)
		abort();
	check_ids(t, &ids);
	tokens_release(&ids);
	tokens_release(&train);
	tokenizer_free(t);
	return 0;
}
