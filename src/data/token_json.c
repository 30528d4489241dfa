/* SPDX-License-Identifier: Apache-2.0 */
/* token_json.c - tokenizer.json (Hugging Face `tokenizers`) and the keys of tokenizer_config.json
 * that belong to it.
 *
 * Read: added_tokens, normalizer, pre_tokenizer, post_processor (TemplateProcessing for one text,
 * ByteLevel), the model BPE, and from the configuration bos_token, eos_token, pad_token, unk_token,
 * and for Llama's tokenizer classes add_bos_token / add_eos_token. `truncation` and `padding` are
 * ignored: the caller decides about lengths. The kinds read the decoder. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/token.h"

#include <string.h>

enum { FILE_MAX = 256 << 20, TEMPLATE_MAX = 64 };

static int need_id(const json_t *v, const char *where, const char *what, int64_t *id_p,
		   struct err *e)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    json_integer_value(v) >= TOKEN_IDS_MAX)
		return err_set(e, ERR_INPUT,
			       "%s: the id of the token '%.64s' must be an integer from 0 to %u",
			       where, what, TOKEN_IDS_MAX - 1);
	*id_p = json_integer_value(v);
	return 0;
}

static int read_vocab(struct tokenizer *t, const json_t *vocab, const json_t *added,
		      const char *where, struct err *e)
{
	const char *key;
	size_t len, i;
	json_t *v;
	int64_t most = -1, id;
	if (!json_is_object(vocab))
		return err_set(e, ERR_INPUT, "%s: 'model.vocab' must be an object", where);
	if (added && !json_is_null(added) && !json_is_array(added))
		return err_set(e, ERR_INPUT, "%s: 'added_tokens' must be a list", where);
	json_object_keylen_foreach((json_t *)vocab, key, len, v)
	{
		TRY(need_id(v, where, key, &id, e));
		most = id > most ? id : most;
	}
	json_array_foreach(added, i, v)
	{
		TRY(json_need_int(v, where, "id", 0, TOKEN_IDS_MAX - 1, &id, e));
		most = id > most ? id : most;
	}
	TRY(token_table_init(t, (size_t)(most + 1), where, e));
	json_object_keylen_foreach((json_t *)vocab, key, len, v)
		TRY(token_put(t, json_integer_value(v), key, len, 0, where, e));
	return 0;
}

static int read_added(struct tokenizer *t, const json_t *added, const char *where, struct err *e)
{
	size_t i;
	json_t *v;
	json_array_foreach(added, i, v)
	{
		struct added a = { 0 };
		int64_t id = 0;
		const json_t *text = json_object_get(v, "content");
		if (!json_is_string(text))
			return err_set(e, ERR_INPUT, "%s: an added token has no 'content'", where);
		if (!json_string_length(text))
			continue;
		TRY(json_need_int(v, where, "id", 0, TOKEN_IDS_MAX - 1, &id, e));
		TRY(json_opt_bool(v, where, "special", &a.special, e));
		TRY(json_opt_bool(v, where, "single_word", &a.single_word, e));
		TRY(json_opt_bool(v, where, "lstrip", &a.lstrip, e));
		TRY(json_opt_bool(v, where, "rstrip", &a.rstrip, e));
		a.normalized = !a.special;
		TRY(json_opt_bool(v, where, "normalized", &a.normalized, e));
		const bool known = strmap_get(&t->by_text, json_string_value(text),
					      json_string_length(text)) >= 0;
		TRY(token_put(t, id, json_string_value(text), json_string_length(text),
			      known ? 0 : TOKEN_OUTSIDE, where, e));
		a.id = (int32_t)id;
		TRY(token_added_put(t, &a, e));
	}
	return token_added_done(t, e);
}

static int add_ids(int32_t **list, size_t *n, const struct tokenizer *t, const json_t *special,
		   const char *name, const char *where, struct err *e)
{
	const json_t *ids = json_object_get(json_object_get(special, name), "ids");
	size_t k = json_array_size(ids);
	if (!k || *n + k > TEMPLATE_MAX)
		return err_set(e, ERR_INPUT,
			       "%s: the post_processor names '%.64s' without ids, or too many",
			       where, name);
	int32_t *p = mem_realloc(*list, (*n + k) * sizeof *p);
	if (!p)
		return err_nomem(e, (*n + k) * sizeof *p, "the post-processor");
	*list = p;
	for (size_t i = 0; i < k; i++) {
		int64_t id;
		TRY(need_id(json_array_get(ids, i), where, name, &id, e));
		if ((size_t)id >= t->ntok || !(t->tok[id].flags & TOKEN_EXISTS))
			return err_set(e, ERR_INPUT,
				       "%s: the post_processor's token '%.64s' has the id %lld, "
				       "which does not exist",
				       where, name, (long long)id);
		p[(*n)++] = (int32_t)id;
	}
	return 0;
}

static int read_post(struct tokenizer *t, const json_t *o, const char *where, int depth,
		     struct err *e)
{
	const char *type = NULL;
	const json_t *item;
	size_t i;
	if (!o || json_is_null(o))
		return 0;
	TRY(json_need_str(o, where, "type", &type, e));
	if (!strcmp(type, "ByteLevel")) /* only moves offsets */
		return 0;
	if (!strcmp(type, "Sequence") && !depth) {
		json_array_foreach(json_object_get(o, "processors"), i, item)
			TRY(read_post(t, item, where, depth + 1, e));
		return 0;
	}
	if (strcmp(type, "TemplateProcessing"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the post_processor '%.64s' is not supported", where, type);
	if (t->nhead || t->ntail)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: more than one TemplateProcessing is not supported", where);
	bool text = false;
	json_array_foreach(json_object_get(o, "single"), i, item)
	{
		const json_t *special = json_object_get(item, "SpecialToken");
		const char *name = NULL;
		if (!special) {
			if (text || !json_object_get(item, "Sequence"))
				return err_set(e, ERR_UNSUPPORTED,
					       "%s: this TemplateProcessing is not supported",
					       where);
			text = true;
			continue;
		}
		TRY(json_need_str(special, where, "id", &name, e));
		TRY(text ? add_ids(&t->tail, &t->ntail, t, json_object_get(o, "special_tokens"),
				   name, where, e)
			 : add_ids(&t->head, &t->nhead, t, json_object_get(o, "special_tokens"),
				   name, where, e));
	}
	return text ? 0
		    : err_set(e, ERR_INPUT, "%s: the TemplateProcessing has no place for the text",
			      where);
}

/* A special token of the configuration: a string or an object with `content`. */
static void config_token(const struct tokenizer *t, const json_t *config, const char *key,
			 int32_t *id_p)
{
	const json_t *v = json_object_get(config, key);
	if (json_is_object(v))
		v = json_object_get(v, "content");
	if (json_is_string(v))
		*id_p = strmap_get(&t->by_text, json_string_value(v), json_string_length(v));
}

/* Llama's tokenizer class makes its post-processor from these two keys and not
 * from tokenizer.json. */
static int config_template(struct tokenizer *t, const json_t *config, const char *where,
			   struct err *e)
{
	static const char *const classes[] = { "LlamaTokenizer", "LlamaTokenizerFast",
					       "CodeLlamaTokenizer", "CodeLlamaTokenizerFast" };
	const char *class = NULL;
	bool bos = true, eos = false, known = false;
	if (!json_object_get(config, "add_bos_token") && !json_object_get(config, "add_eos_token"))
		return 0;
	TRY(json_opt_str(config, where, "tokenizer_class", &class, e));
	for (size_t i = 0; class && i < ARRAY_LEN(classes); i++)
		known |= !strcmp(class, classes[i]);
	if (!known)
		return 0;
	TRY(json_opt_bool(config, where, "add_bos_token", &bos, e));
	TRY(json_opt_bool(config, where, "add_eos_token", &eos, e));
	if ((bos && t->bos < 0) || (eos && t->eos < 0))
		return err_set(e, ERR_INPUT,
			       "%s: the tokenizer's configuration adds a token that it does not "
			       "name (bos_token, eos_token)",
			       where);
	mem_free(t->head);
	mem_free(t->tail);
	t->head = bos ? mem_alloc(sizeof *t->head) : NULL;
	t->tail = eos ? mem_alloc(sizeof *t->tail) : NULL;
	t->nhead = t->ntail = 0;
	if ((bos && !t->head) || (eos && !t->tail))
		return err_nomem(e, sizeof *t->head, "the post-processor");
	if (bos)
		t->head[t->nhead++] = t->bos;
	if (eos)
		t->tail[t->ntail++] = t->eos;
	return 0;
}

static int read_all(struct tokenizer *t, const json_t *doc, const json_t *config, const char *where,
		    struct err *e)
{
	const json_t *model = json_object_get(doc, "model"),
		     *added = json_object_get(doc, "added_tokens");
	const char *type = NULL, *text = NULL;
	double dropout = 0;
	if (!json_is_object(doc) || !json_is_object(model))
		return err_set(e, ERR_INPUT, "%s: this is not a tokenizer.json: it has no 'model'",
			       where);
	TRY(json_opt_str(model, where, "type", &type, e));
	if (type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the tokenizer model '%.64s' is not supported (BPE is)", where,
			       type ? type : "(no type)");
	TRY(json_opt_num(model, where, "dropout", 0, 1, &dropout, e));
	if (dropout > 0)
		return err_set(e, ERR_UNSUPPORTED, "%s: a BPE model with dropout is not supported",
			       where);
	static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
	for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
		text = NULL;
		TRY(json_opt_str(model, where, affixes[i], &text, e));
		if (text && *text)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: a BPE model with '%s' is not supported", where,
				       affixes[i]);
	}
	for (size_t i = 0; !t->kind && tokenizer_kinds[i]; i++)
		if (tokenizer_kinds[i]->fits(doc))
			t->kind = tokenizer_kinds[i];
	if (!t->kind)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s: this tokenizer is neither byte-level nor of SentencePiece's kind",
			where);
	TRY(read_vocab(t, json_object_get(model, "vocab"), added, where, e));
	TRY(merges_read(t, json_object_get(model, "merges"), where, e));
	TRY(json_opt_bool(model, where, "ignore_merges", &t->ignore_merges, e));
	TRY(json_opt_bool(model, where, "byte_fallback", &t->byte_fallback, e));
	TRY(json_opt_bool(model, where, "fuse_unk", &t->fuse_unk, e));
	text = NULL;
	TRY(json_opt_str(model, where, "unk_token", &text, e));
	if (text) {
		t->unk = strmap_get(&t->by_text, text, strlen(text));
		if (t->unk < 0)
			return err_set(e, ERR_INPUT,
				       "%s: the unk_token '%.64s' is not in the vocabulary", where,
				       text);
	}
	TRY(token_normal_read(t, json_object_get(doc, "normalizer"), where, e));
	TRY(token_split_read(t, json_object_get(doc, "pre_tokenizer"), where, e));
	/* before the added tokens: they are not the model's own */
	TRY(t->kind->from_json(t, doc, where, e));
	TRY(read_added(t, added, where, e));
	TRY(t->kind->finish(t, where, e));
	TRY(read_post(t, json_object_get(doc, "post_processor"), where, 0, e));
	if (t->nhead)
		t->bos = t->head[0];
	config_token(t, config, "bos_token", &t->bos);
	config_token(t, config, "eos_token", &t->eos);
	config_token(t, config, "pad_token", &t->pad);
	return config_template(t, config, where, e);
}

int tokenizer_from_json(const json_t *doc, const json_t *tokenizer_config, const char *where,
			struct tokenizer **t_p, struct err *e)
{
	struct tokenizer *t = token_alloc();
	if (!t)
		return err_nomem(e, sizeof *t, "a tokenizer");
	int rc = read_all(t, doc, tokenizer_config, where, e);
	if (rc < 0) {
		tokenizer_free(t);
		return rc;
	}
	*t_p = t;
	return 0;
}

int tokenizer_from_file(const char *tokenizer_json, const json_t *tokenizer_config,
			struct tokenizer **t_p, struct err *e)
{
	json_t *doc = NULL;
	TRY(json_parse_file_in(tokenizer_json, FILE_MAX, JSON_MEMORY_TABLE, &doc, e));
	int rc = tokenizer_from_json(doc, tokenizer_config, tokenizer_json, t_p, e);
	json_decref(doc);
	return rc;
}
