/* SPDX-License-Identifier: Apache-2.0 */
/* model_file.c - the part that all formats share: choosing the format, the table by name, checking
 * the arguments of callers. */
#include "file/model_file.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/model_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT(name) extern const struct model_format format_##name;
#include "file/format.def"
#undef FORMAT

static const struct model_format *const formats[] = {
#define FORMAT(name) &format_##name,
#include "file/format.def"
#undef FORMAT
};

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct model_tensor *const *)a)->name,
		      (*(const struct model_tensor *const *)b)->name);
}

static int make_index(struct model_file *f, struct err *e)
{
	f->by_name = arena_alloc(&f->mem, (f->count + 1) * sizeof *f->by_name);
	if (!f->by_name)
		return err_nomem(e, (f->count + 1) * sizeof *f->by_name, "a table of tensors");
	for (size_t i = 0; i < f->count; i++)
		f->by_name[i] = &f->tensor[i];
	qsort(f->by_name, f->count, sizeof *f->by_name, by_name);
	for (size_t i = 1; i < f->count; i++)
		if (!strcmp(f->by_name[i - 1]->name, f->by_name[i]->name))
			return err_set(e, ERR_INPUT, "%s: duplicate tensor '%s'", f->path,
				       f->by_name[i]->name);
	return 0;
}

/* "owner/name", as models are called on a hub. */
static bool is_hub_name(const char *path)
{
	static const char word[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t owner = strspn(path, word);
	size_t name = path[owner] == '/' ? strspn(path + owner + 1, word) : 0;
	return owner && name && !path[owner + 1 + name] && path[0] != '.' &&
	       !strstr(path, ".gguf") && !strstr(path, ".safetensors");
}

static int not_there(const char *path, struct err *e)
{
	if (!is_hub_name(path))
		return err_set(
			e, ERR_IO,
			"model %s: there is no such file or folder; a folder with config.json "
			"and *.safetensors or a .gguf file was expected",
			path);
	return err_set(
		e, ERR_IO,
		"model %s: there is no such folder here: if that is its name on a hub, give the "
		"folder that 'heteroshard fetch %s' prints",
		path, path);
}

int model_file_open(const char *path, struct model_file **f_p, struct err *e)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return errno == ENOENT ? not_there(path, e) : err_sys(e, errno, "model %s", path);
	const struct model_format *format = NULL;
	for (size_t i = 0; i < ARRAY_LEN(formats) && !format; i++)
		if (formats[i]->claims(path))
			format = formats[i];
	if (!format)
		return err_set(e, ERR_INPUT,
			       "%s: not a model: a folder with config.json and *.safetensors, a "
			       ".safetensors file beside its "
			       "config.json, or a "
			       ".gguf file was expected",
			       path);
	struct model_file *f = mem_zalloc(sizeof *f);
	if (!f)
		return err_nomem(e, sizeof *f, "a model file");
	f->format = format;
	f->path = arena_strdup(&f->mem, path);
	int rc = f->path ? format->open(f, e) : err_nomem(e, strlen(path), "a path");
	if (!rc)
		rc = make_index(f, e);
	if (rc < 0) {
		model_file_close(f);
		return rc;
	}
	*f_p = f;
	return 0;
}

void model_file_close(struct model_file *f)
{
	if (!f)
		return;
	f->format->close(f);
	json_decref(f->config);
	json_decref(f->vocab);
	json_decref(f->tokenizer_config);
	arena_release(&f->mem);
	mem_free(f);
}

const char *model_file_path(const struct model_file *f) { return f->path; }
const char *model_file_format(const struct model_file *f) { return f->format->name; }
const json_t *model_file_config(const struct model_file *f) { return f->config; }
const char *model_file_inside(const struct model_file *f) { return f->inside ? f->inside : ""; }
const char *model_file_tokenizer_path(const struct model_file *f) { return f->tokenizer_path; }
const json_t *model_file_gguf_vocab(const struct model_file *f) { return f->vocab; }
const char *model_file_chat_template(const struct model_file *f) { return f->chat_template; }
const json_t *model_file_tokenizer_config(const struct model_file *f)
{
	return f->tokenizer_config;
}
static bool has_more(const struct model_file *f) { return f->head == &f->own_head; }
size_t model_file_count(const struct model_file *f) { return f->count + has_more(f); }
const struct model_tensor *model_file_tensor(const struct model_file *f, size_t i)
{
	return i < f->count ? &f->tensor[i] : i == f->count && has_more(f) ? f->head : NULL;
}

const struct model_tensor *model_file_find(const struct model_file *f, const char *name)
{
	if (f->head && !strcmp(name, f->head->name))
		return f->head;
	struct model_tensor key = { .name = name };
	const struct model_tensor *k = &key, *const *p = bsearch(&k, f->by_name, f->count,
								 sizeof *f->by_name, by_name);
	return p ? *p : NULL;
}

/* What the format knows it as. */
static const struct model_tensor *stored(const struct model_file *f, const struct model_tensor *t)
{
	return f->head && t == f->head ? f->embed : t;
}

int model_file_untie(struct model_file *f, struct err *e)
{
	static const char key[] = "tie_word_embeddings", name[] = "lm_head.weight";
	const struct model_tensor *embed = model_file_find(f, "model.embed_tokens.weight");
	const json_t *tied = json_object_get(f->config, key);
	if (f->head || !embed || json_is_false(tied))
		return 0;
	if (json_object_set_new(f->config, key, json_false()) < 0)
		return err_nomem(e, sizeof key, "a configuration");
	json_object_del(f->config, "tie_embedding"); /* of LFM2, where it counts more */
	/* one that is there although the embedding is used is not the model's */
	struct model_tensor *head = (struct model_tensor *)model_file_find(f, name);
	f->head = head ? head : &f->own_head;
	*f->head = *embed;
	f->head->name = name;
	f->embed = embed;
	return 0;
}

int model_file_read_f32(struct model_file *f, const struct model_tensor *t, int64_t row0,
			int64_t rows, float *dst, struct err *e)
{
	int64_t n = (int64_t)model_tensor_rows(t);
	if (row0 < 0 || rows < 0 || row0 > n || rows > n - row0)
		return err_set(e, ERR_INTERNAL,
			       "%s: tensor '%s' has %lld rows, [%lld, %lld+%lld) was asked for",
			       f->path, t->name, (long long)n, (long long)row0, (long long)row0,
			       (long long)rows);
	if (t->kind == STORE_PLAIN && t->dtype != DT_F32 && t->dtype != DT_F16 &&
	    t->dtype != DT_BF16 && t->dtype != DT_F64)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor '%s' is stored as %s, weights must be float32, float16 "
			       "or bfloat16",
			       f->path, t->name, dtype_name(t->dtype));
	return rows && t->count ? f->format->read(f, stored(f, t), row0, rows, dst, e) : 0;
}

int model_file_raw(struct model_file *f, const struct model_tensor *t, const void **p_p,
		   struct err *e)
{
	if (t->kind != STORE_PLAIN)
		return err_set(e, ERR_UNSUPPORTED, "%s: tensor '%s' is stored in blocks", f->path,
			       t->name);
	return f->format->raw(f, stored(f, t), p_p, e);
}

int model_file_nf4(struct model_file *f, const struct model_tensor *t, struct nf4_view *v_p,
		   struct err *e)
{
	if (t->kind != STORE_NF4 || !f->format->nf4)
		return err_set(e, ERR_UNSUPPORTED, "%s: tensor '%s' is not stored as NF4", f->path,
			       t->name);
	return f->format->nf4(f, stored(f, t), v_p, e);
}

void model_file_drop(struct model_file *f, const struct model_tensor *t)
{
	f->format->drop(f, stored(f, t));
}
