/* SPDX-License-Identifier: Apache-2.0 */
/* model_folder.c - see model_folder.h. */
#include "runtime/model_folder.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "data/chat.h"
#include "data/tokenizer.h"
#include "file/atomic.h"
#include "file/gguf_names.h"
#include "file/llama3_rope.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_MOST = 4096 };

static const char *const beside[] = { "tokenizer.json",
				      "tokenizer_config.json",
				      "special_tokens_map.json",
				      "chat_template.jinja",
				      "chat_template.json",
				      "generation_config.json",
				      "tokenizer.model",
				      "vocab.json",
				      "merges.txt",
				      "added_tokens.json" };

bool model_folder_has(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(beside); i++)
		if (!strcmp(beside[i], name))
			return true;
	return !strcmp(name, "config.json");
}

static int write_json(const char *dir, const char *name, const json_t *o, bool indent,
		      struct err *e)
{
	char *text = json_dumps(o, (indent ? JSON_INDENT(2) : JSON_COMPACT) | JSON_PRESERVE_ORDER);
	int rc =
		text ? atomic_write_in(dir, name, text, strlen(text), e) : err_nomem(e, 4096, name);
	free(text);
	return rc;
}

/* *found_p: it was there. A file that cannot be read to its end is an error, not a short copy. */
static int copy_file(const char *from_dir, const char *name, const char *dir, bool *found_p,
		     struct err *e)
{
	char from[PATH_MOST], to[PATH_MOST];
	if (snprintf(from, sizeof from, "%s/%s", from_dir, name) >= PATH_MOST ||
	    snprintf(to, sizeof to, "%s/%s", dir, name) >= PATH_MOST)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	int fd;
	*found_p = access(from, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
	if (!*found_p)
		return 0;
	TRY(open_read(from, &fd, NULL, e));
	struct atomic_file out;
	int rc = atomic_begin(to, &out, e);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	static char part[65536];
	ssize_t n = 0;
	while (rc >= 0 && ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR)))
		rc = n > 0 ? atomic_write(&out, part, (size_t)n, e) : 0;
	if (rc >= 0 && n < 0)
		rc = err_sys(e, errno, "%s: reading", from);
	close(fd);
	if (rc < 0) {
		atomic_abort(&out);
		return rc;
	}
	return atomic_commit(&out, e);
}

/* A GGUF names one token as its end (Gemma: <eos>); where its chat template ends an answer with
 * another one (<end_of_turn>), generation must stop at that too. A template that cannot be read is
 * no error here: nothing is rendered. */
static void add_stops(const struct model_file *base, json_t *o)
{
	enum { STOPS_MOST = 8 };
	const json_t *kv = model_file_gguf_vocab(base), *eos = json_object_get(o, "eos_token_id");
	const char *text = model_file_chat_template(base);
	const struct chat_template *chat = NULL;
	struct tokenizer *tok = NULL;
	struct err e = { 0 };
	int32_t id[STOPS_MOST];
	if (!kv || !text || !json_is_integer(eos) ||
	    tokenizer_from_gguf(kv, model_file_path(base), &tok, &e) < 0)
		return;
	size_t n = chat_from_jinja(text, tok, &chat, &e) < 0
			   ? 0
			   : chat_stops(chat, tok, id, STOPS_MOST);
	json_t *all = json_pack("[O]", eos);
	for (size_t i = 0; i < n; i++)
		if (id[i] != json_integer_value(eos))
			json_array_append_new(all, json_integer(id[i]));
	if (json_array_size(all) > 1)
		json_object_set(o, "eos_token_id", all);
	json_decref(all);
	chat_free(chat);
	tokenizer_free(tok);
}

/* What generation needs to know where the model does not say it. */
static int make_generation(const struct model_file *base, const char *dir, struct err *e)
{
	static const char *const keys[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
	static const char *const gguf[] = { "tokenizer.ggml.bos_token_id",
					    "tokenizer.ggml.eos_token_id",
					    "tokenizer.ggml.padding_token_id" };
	json_t *o = json_object();
	json_object_set_new(o, "_from_model_config", json_true());
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *v = json_object_get(model_file_config(base), keys[i]);
		if (!v)
			v = json_object_get(model_file_gguf_vocab(base), gguf[i]);
		if (v && !json_is_null(v))
			json_object_set(o, keys[i], v);
	}
	add_stops(base, o);
	int rc = write_json(dir, "generation_config.json", o, true, e);
	json_decref(o);
	return rc;
}

static int make_tokenizer(const struct model_file *base, const char *dir, struct err *e)
{
	json_t *doc, *config;
	TRY(tokenizer_gguf_to_json(model_file_gguf_vocab(base), model_file_chat_template(base),
				   model_file_path(base), &doc, &config, e));
	int rc = write_json(dir, "tokenizer.json", doc, false, e);
	if (rc >= 0)
		rc = write_json(dir, "tokenizer_config.json", config, true, e);
	json_decref(doc);
	json_decref(config);
	return rc;
}

/* A GGUF's rope factors. NULL: it has none. */
static const json_t *rope_factors(const json_t *config)
{
	const json_t *rope = json_object_get(config, "rope_scaling");
	const char *type = json_string_value(json_object_get(rope, "rope_type"));
	return type && !strcmp(type, "gguf_factors") ? json_object_get(rope, "factors") : NULL;
}

/* The parameters from which they follow, as config.json has them; NULL: none are known. */
static json_t *rope_recovered(const json_t *config)
{
	return llama3_rope_recover(rope_factors(config),
				   json_number_value(json_object_get(config, "rope_theta")));
}

/* As transformers has it: the original length beside, which is else the family's own, and three
 * members, more than which older versions refuse. */
static void spell_longrope(json_t *config)
{
	static const char length[] = "original_max_position_embeddings";
	json_t *rope = json_object_get(config, "rope_scaling");
	const char *type = json_string_value(json_object_get(rope, "rope_type"));
	if (!type || strcmp(type, "longrope"))
		return;
	json_t *original = json_object_get(rope, length);
	const double most = json_number_value(json_object_get(config, "max_position_embeddings")),
		     first = json_number_value(original),
		     by = json_number_value(json_object_get(rope, "attention_factor"));
	json_object_set(config, length, original);
	json_object_del(rope, length);
	json_object_set_new(rope, "type", json_string(type));
	json_object_del(rope, "rope_type");
	if (first > 1 && most > first && fabs(by - sqrt(1 + log(most / first) / log(first))) < 1e-5)
		json_object_del(rope, "attention_factor");
}

/* What transformers would otherwise fill in: an id of another vocabulary for padding, and for
 * EXAONE 4 without a window a pattern of no layers, at which it fails. */
static void fill_in(json_t *config)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));
	spell_longrope(config);
	if (!json_object_get(config, "pad_token_id"))
		json_object_set_new(config, "pad_token_id", json_null());
	if (strcmp(type, "exaone4") || !json_is_null(json_object_get(config, "sliding_window")))
		return;
	json_t *types = json_array();
	const json_int_t n = json_integer_value(json_object_get(config, "num_hidden_layers"));
	for (json_int_t i = 0; i < n; i++)
		json_array_append_new(types, json_string("full_attention"));
	json_object_set_new(config, "layer_types", types);
}

int model_folder_config(const struct model_file *base, const char *dir, enum dtype dtype,
			struct err *e)
{
	static const char *const words[] = {
		[DT_F32] = "float32", [DT_BF16] = "bfloat16", [DT_F16] = "float16"
	};
	json_t *config = json_deep_copy(model_file_config(base));
	json_t *rope = rope_recovered(config);
	if (rope)
		json_object_set_new(config, "rope_scaling", rope);
	json_object_del(config, "quantization_config");
	json_object_del(config, "dtype");
	json_object_set_new(config, "torch_dtype", json_string(words[dtype]));
	/* A GGUF does not say it; llama.cpp's converter, vLLM and others choose by it. */
	const char *type = json_string_value(json_object_get(config, "model_type"));
	const struct gguf_arch *arch = type ? gguf_arch_for(type) : NULL;
	if (arch && !json_object_get(config, "architectures")) {
		json_object_set_new(config, "architectures", json_pack("[s]", arch->architecture));
		fill_in(config);
	}
	int rc = write_json(dir, "config.json", config, true, e);
	json_decref(config);
	return rc;
}

int model_folder_write(struct model_file *base, const char *dir, enum dtype dtype, struct err *e)
{
	bool generation = false;
	if (model_file_gguf_vocab(base)) {
		TRY(make_tokenizer(base, dir, e));
	} else {
		for (size_t i = 0; i < ARRAY_LEN(beside); i++) {
			bool found;
			TRY(copy_file(model_file_path(base), beside[i], dir, &found, e));
			generation |= found && !strcmp(beside[i], "generation_config.json");
		}
		if (!model_file_tokenizer_path(base))
			log_warn("%s: has no tokenizer.json, so neither has %s",
				 model_file_path(base), dir);
	}
	if (!generation)
		TRY(make_generation(base, dir, e));
	return model_folder_config(base, dir, dtype, e);
}

int model_folder_check(const struct model_file *base, struct err *e)
{
	const json_t *config = model_file_config(base);
	json_t *rope = rope_recovered(config);
	const bool known = rope || !rope_factors(config);
	json_decref(rope);
	if (!known)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: its rope factors are not those of Llama 3.1's scaling, and no "
			       "other has a name in a folder's config.json: a .gguf file can hold "
			       "them",
			       model_file_path(base));
	return 0;
}
