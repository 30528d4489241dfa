/* SPDX-License-Identifier: Apache-2.0 */
/* info_model.c - models and single safetensors files, described from their headers; weights are
 * not read. */
#include "cli/info.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/chat.h"
#include "data/tokenizer.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/model_file.h"
#include "file/safetensors.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

enum { KINDS_MOST = 24 };

struct kinds {
	struct {
		const char *name;
		uint64_t tensors, parameters, bytes;
	} kind[KINDS_MOST];
	size_t n;
	uint64_t parameters, bytes;
};

static void kinds_add(struct kinds *k, const char *name, uint64_t count, uint64_t bytes)
{
	size_t i = 0;
	while (i < k->n && strcmp(k->kind[i].name, name))
		i++;
	if (i == KINDS_MOST)
		return;
	k->n = i == k->n ? i + 1 : k->n;
	k->kind[i].name = name;
	k->kind[i].tensors++;
	k->kind[i].parameters += count;
	k->kind[i].bytes += bytes;
	k->parameters += count;
	k->bytes += bytes;
}

static json_t *kinds_json(const struct kinds *k)
{
	json_t *list = json_array();
	for (size_t i = 0; i < k->n; i++)
		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "weights_as",
						      k->kind[i].name, "tensors",
						      (json_int_t)k->kind[i].tensors, "parameters",
						      (json_int_t)k->kind[i].parameters, "bytes",
						      (json_int_t)k->kind[i].bytes));
	return list;
}

static const char *storage_name(const struct model_tensor *t)
{
	const char *name = NULL;
	int block, bytes;
	if (t->kind == STORE_NF4)
		return t->ggml_type == GGML_MXFP4 ? "MXFP4" : "NF4";
	if (t->kind == STORE_BLOCK)
		return ggml_type_info(t->ggml_type, &block, &bytes, &name) && name
			       ? name
			       : "unknown block format";
	return dtype_name(t->dtype);
}

static json_t *tensor_row(const char *name, const char *as, const int64_t *shape, int ndim,
			  uint64_t bytes)
{
	json_t *dims = json_array();
	for (int i = 0; i < ndim; i++)
		json_array_append_new(dims, json_integer(shape[i]));
	return json_pack("{s:s, s:s, s:o, s:I}", "tensor", name, "stored_as", as, "shape", dims,
			 "bytes", (json_int_t)bytes);
}

static void add_shape(json_t *o, const json_t *config, const struct model_config *c)
{
	json_object_set_new(o, "family", json_string(c->family));
	if (c->own.n) { /* its text says the rest */
		json_object_set_new(o, "layers", json_integer(c->layers));
		json_object_set(o, "blocks", json_object_get(config, "blocks"));
		json_object_set_new(o, "parameters", json_integer(model_parameters(c)));
		return;
	}
	json_object_set_new(o, "layers", json_integer(c->layers));
	json_object_set_new(o, "hidden_size", json_integer(c->hidden));
	json_object_set_new(o, "feed_forward", json_integer(c->intermediate));
	json_object_set_new(o, "heads", json_integer(c->heads));
	json_object_set_new(o, "key_value_heads", json_integer(c->kv_heads));
	json_object_set_new(o, "head_size", json_integer(c->head_dim));
	if (c->full_head_dim) {
		json_object_set_new(o, "key_value_heads_without_window",
				    json_integer(c->full_kv_heads));
		json_object_set_new(o, "head_size_without_window", json_integer(c->full_head_dim));
	}
	json_object_set_new(o, "vocabulary", json_integer(c->vocab));
	if (c->max_positions)
		json_object_set_new(o, "context_length", json_integer(c->max_positions));
	if (c->window)
		json_object_set_new(o, "sliding_window", json_integer(c->window));
	json_object_set_new(o, "tied_embeddings", json_boolean(c->tied));
	if (c->experts) {
		json_object_set_new(o, "experts", json_integer(c->experts));
		json_object_set_new(o, "experts_per_token", json_integer(c->top_k));
	}
	json_object_set_new(o, "parameters", json_integer(model_parameters(c)));
	if (c->experts)
		json_object_set_new(o, "active_parameters",
				    json_integer(model_active_parameters(c)));
}

static void add_tokenizer(json_t *o, const struct model_file *f)
{
	struct err e = { 0 };
	struct tokenizer *t = NULL;
	const char *path = model_file_tokenizer_path(f);
	int rc = -1;
	if (path)
		rc = tokenizer_from_file(path, model_file_tokenizer_config(f), &t, &e);
	else if (model_file_gguf_vocab(f))
		rc = tokenizer_from_gguf(model_file_gguf_vocab(f), model_file_path(f), &t, &e);
	else
		snprintf(e.msg, sizeof e.msg, "none");
	if (rc < 0) {
		json_object_set_new(o, "tokenizer", json_string(e.msg));
		return;
	}
	json_object_set_new(o, "tokens", json_integer((json_int_t)tokenizer_vocab_size(t)));
	const struct chat_template *chat = chat_detect(model_file_chat_template(f), t);
	json_object_set_new(o, "chat_template",
			    json_string(chat                          ? chat_name(chat)
					: model_file_chat_template(f) ? "its own (Jinja)"
								      : "none"));
	tokenizer_free(t);
}

static json_t *model_row(void *ctx, size_t i)
{
	const struct model_tensor *t = model_file_tensor(ctx, i);
	return tensor_row(t->name, storage_name(t), t->shape, t->ndim, t->bytes);
}

static void model_close(void *ctx) { model_file_close(ctx); }

static json_t *gguf_row(void *ctx, size_t i)
{
	const struct gguf_tensor *t = &((const struct gguf *)ctx)->tensor[i];
	int64_t shape[4];
	for (int k = 0; k < t->ndim; k++)
		shape[k] = t->ne[t->ndim - 1 - k];
	return tensor_row(t->name, ggml_type_name(t->type), shape, t->ndim, t->bytes);
}

static void gguf_row_close(void *ctx)
{
	gguf_close(ctx);
	mem_free(ctx);
}

int info_gguf_adapter(const char *path, struct info_rows *rows, json_t **o_p)
{
	struct gguf *g = mem_zalloc(sizeof *g);
	struct kinds k = { .n = 0 };
	struct err ignored = { 0 };
	if (!g || gguf_open(path, g, &ignored) < 0) {
		mem_free(g);
		return 0;
	}
	if (!gguf_is_adapter(g)) {
		gguf_row_close(g);
		return 0;
	}
	for (size_t i = 0; i < g->ntensor; i++)
		kinds_add(&k, ggml_type_name(g->tensor[i].type), g->tensor[i].count,
			  g->tensor[i].bytes);
	json_t *o =
		json_pack("{s:s, s:s}", "kind", "LoRA adapter (GGUF, for llama.cpp)", "path", path);
	static const char *const key[][2] = { { "general.architecture", "architecture" },
					      { "adapter.lora.alpha", "lora_alpha" } };
	for (size_t i = 0; i < ARRAY_LEN(key); i++) {
		const struct gguf_kv *kv = gguf_find(g, key[i][0]);
		json_t *v;
		if (kv && gguf_kv_one(g, kv, &v, &ignored) >= 0)
			json_object_set_new(o, key[i][1], v);
	}
	json_object_set_new(o, "modules", json_integer((json_int_t)(g->ntensor / 2)));
	json_object_set_new(o, "parameters", json_integer((json_int_t)k.parameters));
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)k.bytes));
	json_object_set_new(o, "weights", kinds_json(&k));
	if (rows)
		*rows = (struct info_rows){ "tensor_list", g->ntensor, gguf_row, gguf_row_close,
					    g };
	else
		gguf_row_close(g);
	*o_p = o;
	return 1;
}

int info_model(const char *path, struct info_rows *rows, json_t **o_p, struct err *e)
{
	struct model_file *f;
	struct kinds k = { .n = 0 };
	struct model_config *c = mem_zalloc(sizeof *c);
	struct err why = { 0 };
	if (!c)
		return err_nomem(e, sizeof *c, "a model's configuration");
	int rc = model_file_open(path, &f, e);
	if (rc < 0) {
		mem_free(c);
		return rc;
	}
	json_t *o = json_object();
	json_object_set_new(o, "kind", json_string("model"));
	json_object_set_new(o, "path", json_string(path));
	json_object_set_new(o, "format", json_string(model_file_format(f)));
	if (*model_file_inside(f))
		json_object_set_new(o, "pictures", json_string("not read: the language model is"));
	if (model_config_read(model_file_config(f), path, c, &why) >= 0)
		add_shape(o, model_file_config(f), c);
	else
		json_object_set_new(o, "not_supported", json_string(why.msg));
	for (size_t i = 0; i < model_file_count(f); i++) {
		const struct model_tensor *t = model_file_tensor(f, i);
		kinds_add(&k, storage_name(t), t->count, t->bytes);
	}
	add_tokenizer(o, f);
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)k.bytes));
	json_object_set_new(o, "weights", kinds_json(&k));
	mem_free(c);
	if (rows)
		*rows = (struct info_rows){ "tensor_list", model_file_count(f), model_row,
					    model_close, f };
	else
		model_file_close(f);
	*o_p = o;
	return 0;
}

static json_t *st_row(void *ctx, size_t i)
{
	const struct st_tensor *t = st_get(ctx, i);
	return tensor_row(t->name, dtype_name(t->dtype), t->shape, t->ndim, t->bytes);
}

static void st_row_close(void *ctx) { st_close(ctx); }

int info_safetensors(const char *path, struct info_rows *rows, json_t **o_p, struct err *e)
{
	struct st_file *f;
	struct kinds k = { .n = 0 };
	TRY(st_open(path, &f, e));
	json_t *o = json_object();
	json_object_set_new(o, "kind", json_string("safetensors file"));
	json_object_set_new(o, "path", json_string(path));
	for (size_t i = 0; i < st_count(f); i++) {
		const struct st_tensor *t = st_get(f, i);
		kinds_add(&k, dtype_name(t->dtype), t->count, t->bytes);
	}
	json_object_set_new(o, "tensors", json_integer((json_int_t)st_count(f)));
	json_object_set_new(o, "parameters", json_integer((json_int_t)k.parameters));
	json_object_set_new(o, "size_bytes", json_integer((json_int_t)k.bytes));
	if (st_metadata(f))
		json_object_set(o, "metadata", (json_t *)st_metadata(f));
	json_object_set_new(o, "weights", kinds_json(&k));
	if (rows)
		*rows = (struct info_rows){ "tensor_list", st_count(f), st_row, st_row_close, f };
	else
		st_close(f);
	*o_p = o;
	return 0;
}
