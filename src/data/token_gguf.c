/* SPDX-License-Identifier: Apache-2.0 */
/* token_gguf.c - tokenizers from a GGUF's KV pairs: tokenizer.ggml.tokens, .token_type, .scores,
 * .merges, .pre, the ids of the special tokens, add_bos_token, add_eos_token, add_space_prefix.
 * Names and defaults as llama.cpp (src/llama-vocab.cpp) has them. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/token.h"

#include <stdio.h>
#include <string.h>

#define KEY "tokenizer.ggml."

enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_BYTE = 6 };

static int read_tokens(struct tokenizer *t, const json_t *kv, const char *where, struct err *e)
{
	const json_t *tokens = json_object_get(kv, KEY "tokens"),
		     *types = json_object_get(kv, KEY "token_type"), *v;
	size_t i, n = json_array_size(tokens);
	if (!json_is_array(tokens))
		return err_set(e, ERR_INPUT, "%s: the key '" KEY "tokens' is missing", where);
	if (types && json_array_size(types) != n)
		return err_set(e, ERR_INPUT, "%s: %zu tokens, but %zu types of tokens", where, n,
			       json_array_size(types));
	TRY(token_table_init(t, n, where, e));
	json_array_foreach(tokens, i, v)
	{
		char empty[32];
		if (!json_is_string(v))
			return err_set(e, ERR_INPUT, "%s: token %zu is not a string", where, i);
		json_int_t type = json_integer_value(json_array_get(types, i));
		uint8_t flags = type == TYPE_BYTE ? TOKEN_BYTE : 0;
		if (json_string_length(v)) {
			TRY(token_put(t, (int64_t)i, json_string_value(v), json_string_length(v),
				      flags, where, e));
		} else {
			snprintf(empty, sizeof empty, "[EMPTY_%zu]", i);
			TRY(token_put(t, (int64_t)i, empty, strlen(empty), flags, where, e));
		}
		if (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER_DEFINED) {
			struct added a = { .id = (int32_t)i, .special = type != TYPE_USER_DEFINED };
			TRY(token_added_put(t, &a, e));
		}
	}
	return token_added_done(t, e);
}

static int special_id(const struct tokenizer *t, const json_t *kv, const char *key,
		      const char *where, int32_t *id_p, struct err *e)
{
	int64_t id = -1;
	TRY(json_opt_int(kv, where, key, 0, UINT32_MAX, &id, e));
	/* Writers have used 2^32-1 and other ids outside the vocabulary for "none". */
	if (id >= 0 && (size_t)id < t->ntok)
		*id_p = (int32_t)id;
	return 0;
}

static int add_end(struct tokenizer *t, const json_t *kv, const char *key, int32_t id,
		   int32_t **list, size_t *n, const char *where, struct err *e)
{
	bool add = *n > 0;
	TRY(json_opt_bool(kv, where, key, &add, e));
	*n = 0;
	if (!add)
		return 0;
	if (id < 0)
		return err_set(e, ERR_INPUT, "%s: '%s' is set, but there is no such token", where,
			       key);
	*list = mem_alloc(sizeof **list);
	if (!*list)
		return err_nomem(e, sizeof **list, "the post-processor");
	(*list)[0] = id;
	*n = 1;
	t->tok[id].flags |= TOKEN_SPECIAL;
	return 0;
}

static int read_all(struct tokenizer *t, const json_t *kv, const char *where, struct err *e)
{
	const char *model = NULL;
	TRY(json_need_str(kv, where, KEY "model", &model, e));
	for (size_t i = 0; !t->kind && tokenizer_kinds[i]; i++)
		for (size_t k = 0; k < ARRAY_LEN(tokenizer_kinds[i]->gguf_models); k++) {
			const char *name = tokenizer_kinds[i]->gguf_models[k];
			if (name && !strcmp(name, model))
				t->kind = tokenizer_kinds[i];
		}
	if (!t->kind)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: the tokenizer model '%.64s' is not supported (gpt2, llama and gemma4 "
			"are)",
			where, model);
	TRY(read_tokens(t, kv, where, e));
	TRY(special_id(t, kv, KEY "bos_token_id", where, &t->bos, e));
	TRY(special_id(t, kv, KEY "eos_token_id", where, &t->eos, e));
	TRY(special_id(t, kv, KEY "padding_token_id", where, &t->pad, e));
	TRY(special_id(t, kv, KEY "unknown_token_id", where, &t->unk, e));
	TRY(t->kind->from_gguf(t, kv, where, e));
	TRY(add_end(t, kv, KEY "add_bos_token", t->bos, &t->head, &t->nhead, where, e));
	TRY(add_end(t, kv, KEY "add_eos_token", t->eos, &t->tail, &t->ntail, where, e));
	return t->kind->finish(t, where, e);
}

int tokenizer_from_gguf(const json_t *kv, const char *where, struct tokenizer **t_p, struct err *e)
{
	if (!json_is_object(kv))
		return err_set(e, ERR_INPUT, "%s: the file has no tokenizer", where);
	struct tokenizer *t = token_alloc();
	if (!t)
		return err_nomem(e, sizeof *t, "a tokenizer");
	int rc = read_all(t, kv, where, e);
	if (rc < 0) {
		tokenizer_free(t);
		return rc;
	}
	*t_p = t;
	return 0;
}
