/* SPDX-License-Identifier: Apache-2.0 */
/* format_safetensors.c - a Hugging Face folder: config.json, one or several safetensors files,
 * tokenizer files beside them.
 *
 * model.safetensors is used when it exists, else the files that model.safetensors.index.json
 * names. The index decides which tensor comes from which file; a name in it that leads out of the
 * folder is refused. Pickled weights (*.bin, *.pt) are never read. 4-bit weights of bitsandbytes
 * become one tensor each (bnb.h), the experts of a layer in one tensor, of gpt-oss also in MXFP4,
 * tensors of their own (fused.h); every other quantisation is refused by name. Of a folder with a
 * model for pictures only the language model is shown (text_part.h). src/model interprets
 * config.json. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/bnb.h"
#include "file/fused.h"
#include "file/ggml_blocks.h"
#include "file/model_format.h"
#include "file/safetensors.h"
#include "file/text_part.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_MAX (16ull << 20)
#define INDEX_MAX (64ull << 20)
#define TEMPLATE_MAX (4ull << 20)
enum { FILES_MAX = 4096 };

struct shard {
	const char *name; /* inside the folder */
	struct st_file *st;
};

/* One tensor of a file, before 4-bit weights are put together. */
struct found {
	const struct st_tensor *st;
	const struct shard *shard;
	bool part; /* belongs to a 4-bit weight */
};

/* Beside each model_tensor. */
struct entry {
	const struct st_tensor *st, *part[BNB_PARTS];
	const struct st_file *file, *part_file[BNB_PARTS];
	const char *data; /* of a plain tensor: where it begins */
	struct nf4_view nf4;
	struct fused fused;
	const struct st_tensor *scales; /* of FUSED_BLOCKS */
	const struct st_file *scales_file;
};

struct folder {
	const char *dir;
	struct shard *shard;
	size_t nshard;
	struct found *found; /* in order of the data */
	size_t nfound;
	struct found **by_name;
	struct entry *whole; /* beside each `found`: the parts of a 4-bit weight */
	struct entry *entry;
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n >= k && !strcmp(s + n - k, end);
}

static bool claims(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && (S_ISDIR(st.st_mode) || ends_with(path, ".safetensors"));
}

static int join(struct model_file *f, const char *dir, const char *name, const char **path_p,
		struct err *e)
{
	size_t n = strlen(dir), k = strlen(name);
	char *s = arena_alloc(&f->mem, n + k + 2);
	if (!s)
		return err_nomem(e, n + k, "a path");
	memcpy(s, dir, n);
	s[n] = '/';
	memcpy(s + n + 1, name, k + 1);
	*path_p = s;
	return 0;
}

/* The path of a file in the folder, or NULL when it does not exist. */
static int existing_path(struct model_file *f, const char *name, const char **path_p, struct err *e)
{
	struct folder *fo = f->priv;
	const char *path = NULL;
	TRY(join(f, fo->dir, name, &path, e));
	*path_p = access(path, F_OK) == 0 ? path : NULL;
	return 0;
}

static int by_found_name(const void *a, const void *b)
{
	return strcmp((*(struct found *const *)a)->st->name, (*(struct found *const *)b)->st->name);
}

static struct found *find(const struct folder *fo, const char *name)
{
	struct st_tensor st = { .name = name };
	struct found key = { .st = &st }, *k = &key,
		     **p = bsearch(&k, fo->by_name, fo->nfound, sizeof(struct found *),
				   by_found_name);
	return p ? *p : NULL;
}

/* "P" + suffix, or NULL. */
static int find_part(const struct folder *fo, const char *base, size_t n, const char *suffix,
		     struct buf *b, struct found **p_p, struct err *e)
{
	buf_reset(b);
	buf_add(b, base, n);
	buf_adds(b, suffix);
	TRY(buf_ok(b, e));
	*p_p = find(fo, b->p);
	return 0;
}

static int open_shard(struct model_file *f, struct shard *s, struct err *e)
{
	struct folder *fo = f->priv;
	const char *path = NULL;
	TRY(join(f, fo->dir, s->name, &path, e));
	return st_open(path, &s->st, e);
}

static void add_found(struct folder *fo, const struct st_tensor *t, const struct shard *s)
{
	fo->found[fo->nfound++] = (struct found){ t, s, false };
}

static int open_single(struct model_file *f, const char *name, struct err *e)
{
	struct folder *fo = f->priv;
	fo->shard = arena_alloc(&f->mem, sizeof *fo->shard);
	if (!fo->shard)
		return err_nomem(e, sizeof *fo->shard, "a file");
	fo->shard[0].name = name;
	fo->nshard = 1;
	TRY(open_shard(f, &fo->shard[0], e));
	size_t n = st_count(fo->shard[0].st);
	fo->found = arena_alloc(&f->mem, (n + 1) * sizeof *fo->found);
	if (!fo->found)
		return err_nomem(e, (n + 1) * sizeof *fo->found, "a table of tensors");
	for (size_t i = 0; i < n; i++)
		add_found(fo, st_get(fo->shard[0].st, i), &fo->shard[0]);
	return 0;
}

static int by_shard_name(const void *a, const void *b)
{
	return strcmp(((const struct shard *)a)->name, ((const struct shard *)b)->name);
}

static struct shard *find_shard(const struct folder *fo, const char *name)
{
	struct shard key = { name, NULL };
	return bsearch(&key, fo->shard, fo->nshard, sizeof *fo->shard, by_shard_name);
}

/* The distinct file names of the index, sorted. */
static int list_shards(struct model_file *f, const char *index, const json_t *map, struct err *e)
{
	struct folder *fo = f->priv;
	const char *name;
	json_t *v;
	size_t n = 0, room = json_object_size(map), kept = 0;
	fo->shard = arena_alloc(&f->mem, (room + 1) * sizeof *fo->shard);
	if (!fo->shard)
		return err_nomem(e, (room + 1) * sizeof *fo->shard, "a table of files");
	json_object_foreach((json_t *)map, name, v)
	{
		const char *file = json_string_value(v);
		if (!file || !*file || strlen(file) != json_string_length(v))
			return err_set(e, ERR_INPUT, "%s: '%s' names no file", index, name);
		if (strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, ".."))
			return err_set(e, ERR_INPUT,
				       "%s: '%s' is in '%s', which is outside the folder", index,
				       name, file);
		fo->shard[n++].name = file;
	}
	qsort(fo->shard, n, sizeof *fo->shard, by_shard_name);
	for (size_t i = 0; i < n; i++)
		if (!i || strcmp(fo->shard[i].name, fo->shard[kept - 1].name) != 0)
			fo->shard[kept++].name = fo->shard[i].name;
	if (kept > FILES_MAX)
		return err_set(e, ERR_INPUT, "%s: names %zu files, %d are allowed", index, kept,
			       FILES_MAX);
	for (fo->nshard = 0; fo->nshard < kept; fo->nshard++) {
		struct shard *s = &fo->shard[fo->nshard];
		s->name = arena_strdup(&f->mem, s->name);
		if (!s->name)
			return err_nomem(e, 256, "a file name");
		int rc = open_shard(f, s, e);
		if (rc < 0)
			return err_prefix(e, "%s", index);
	}
	return 0;
}

/* Every tensor of the index, file by file and within a file in order of the data. */
static int open_sharded(struct model_file *f, const char *index, const json_t *doc, struct err *e)
{
	struct folder *fo = f->priv;
	const json_t *map = json_object_get(doc, "weight_map");
	const char *name;
	json_t *v;
	if (!json_is_object(map) || !json_object_size(map))
		return err_set(e, ERR_INPUT, "%s: 'weight_map' is missing or empty", index);
	TRY(list_shards(f, index, map, e));
	fo->found = arena_alloc(&f->mem, json_object_size(map) * sizeof *fo->found);
	if (!fo->found)
		return err_nomem(e, json_object_size(map) * sizeof *fo->found,
				 "a table of tensors");
	json_object_foreach(
		(json_t *)map, name,
		v) if (!st_find(find_shard(fo, json_string_value(v))->st,
				name)) return err_set(e, ERR_INPUT,
						      "%s: the tensor '%s' is not in '%s'", index,
						      name, json_string_value(v));
	for (size_t s = 0; s < fo->nshard; s++) {
		for (size_t i = 0; i < st_count(fo->shard[s].st); i++) {
			const struct st_tensor *t = st_get(fo->shard[s].st, i);
			const char *file = json_string_value(json_object_get(map, t->name));
			if (file && !strcmp(file, fo->shard[s].name))
				add_found(fo, t, &fo->shard[s]);
		}
	}
	return 0;
}

static int open_files(struct model_file *f, const char *only, struct err *e)
{
	struct folder *fo = f->priv;
	const char *path = NULL;
	if (only)
		return open_single(f, only, e);
	TRY(existing_path(f, "model.safetensors", &path, e));
	if (path)
		return open_single(f, "model.safetensors", e);
	TRY(existing_path(f, "model.safetensors.index.json", &path, e));
	if (path) {
		json_t *doc = NULL;
		TRY(json_parse_file_in(path, INDEX_MAX, JSON_MEMORY_TABLE, &doc, e));
		int rc = open_sharded(f, path, doc, e);
		json_decref(doc);
		return rc;
	}
	TRY(existing_path(f, "adapter_model.safetensors", &path, e));
	if (path)
		return err_set(e, ERR_INPUT,
			       "%s: is an adapter, not a model: give the model it was made for, "
			       "and this as the adapter",
			       fo->dir);
	TRY(existing_path(f, "pytorch_model.bin", &path, e));
	return err_set(e, ERR_INPUT,
		       "%s: has neither model.safetensors nor model.safetensors.index.json%s",
		       fo->dir,
		       path ? "; pickled weights (pytorch_model.bin) are never read, convert them "
			      "to safetensors"
			    : "");
}

static const char *model_type(const struct model_file *f)
{
	return json_string_value(json_object_get(f->config, "model_type"));
}

/* Refuses weights with a quantisation that is not supported. */
static int check_quantisation(struct model_file *f, struct err *e)
{
	struct folder *fo = f->priv;
	const json_t *q = json_object_get(f->config, "quantization_config");
	const char *method = json_string_value(json_object_get(q, "quant_method"));
	if (json_is_object(q) && method && strcmp(method, "bitsandbytes") != 0 &&
	    !(fused_is_oss(model_type(f)) && !strcmp(method, "mxfp4")))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s/config.json: 'quantization_config.quant_method' is '%s', only "
			       "bitsandbytes NF4 is read",
			       fo->dir, method);
	if (json_is_true(json_object_get(q, "load_in_8bit")))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s/config.json: 'quantization_config.load_in_8bit' is true, only "
			       "bitsandbytes NF4 is read",
			       fo->dir);
	return 0;
}

/* Puts the parts of each 4-bit weight together: they are marked in `found`, and the weight's entry
 * names them. */
static int collect_parts(struct model_file *f, struct err *e)
{
	struct folder *fo = f->priv;
	struct buf b = BUF_INIT;
	int rc = 0;
	for (size_t i = 0; i < fo->nfound && !rc; i++) {
		const char *name = fo->found[i].st->name, *state = strstr(name, BNB_STATE);
		if (!state)
			continue;
		size_t n = (size_t)(state - name);
		struct found *p = NULL;
		if (strcmp(state, bnb_suffix[BNB_STATE_NF4]) != 0) {
			rc = err_set(e, ERR_UNSUPPORTED,
				     "%s: '%.*s' is stored as bitsandbytes %s, only nf4 is read",
				     fo->dir, (int)n, name, state + strlen(BNB_STATE));
			break;
		}
		TRYOUT(find_part(fo, name, n, "", &b, &p, e));
		if (!p) {
			rc = err_set(e, ERR_INPUT, "%s: has '%s', but not the weight '%.*s'",
				     fo->dir, name, (int)n, name);
			break;
		}
		struct entry *en = &fo->whole[p - fo->found];
		for (int k = 0; k < BNB_PARTS; k++) {
			TRYOUT(find_part(fo, name, n, bnb_suffix[k], &b, &p, e));
			if (!p)
				continue;
			p->part = true;
			en->part[k] = p->st;
			en->part_file[k] = p->shard->st;
		}
	}
out:
	buf_release(&b);
	return rc;
}

static int plain_tensor(const struct folder *fo, const struct st_tensor *st, struct model_tensor *t,
			struct err *e)
{
	if (st->ndim > (int)ARRAY_LEN(t->shape))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: tensor '%s' has %d dimensions, at most %zu are read", fo->dir,
			       st->name, st->ndim, ARRAY_LEN(t->shape));
	*t = (struct model_tensor){ .kind = STORE_PLAIN,
				    .dtype = st->dtype,
				    .ndim = st->ndim,
				    .count = st->count,
				    .bytes = st->bytes };
	for (int i = 0; i < st->ndim; i++)
		t->shape[i] = st->shape[i];
	if (st->ndim == 2 && st->shape[0] == 1 && strstr(st->name, ".moe_statics.")) {
		t->ndim = 1; /* a vector (model_file.h) */
		t->shape[0] = t->shape[1];
		t->shape[1] = 0;
	}
	if (st->ndim == 3 && st->shape[1] == 1 &&
	    (strstr(st->name, ".conv1d.") || strstr(st->name, ".conv.conv."))) {
		t->ndim = 1; /* of a convolution by channel: a vector (model_file.h) */
		t->shape[0] = (int64_t)st->count;
		t->shape[1] = t->shape[2] = 0;
	}
	return 0;
}

/* ---- experts of a layer in one tensor ---- */

/* How many tensors of the model a tensor of the folder is. */
static int count_parts(const struct model_file *f, const struct st_tensor *st, size_t *n_p,
		       struct err *e)
{
	const struct folder *fo = f->priv;
	int parts = 0;
	int64_t experts, shape[2];
	const enum fused_kind k = fused_find(f->config, st->name, st->ndim, st->shape, &parts);
	*n_p = k == FUSED_NOT;
	if (k == FUSED_NOT || k == FUSED_SCALES)
		return 0;
	TRY(fused_shape(fo->dir, st->name, k, parts, st->ndim, st->shape, &experts, shape, e));
	*n_p = (size_t)experts * (size_t)parts;
	return 0;
}

/* The scales beside blocks, which must be as many. */
static int find_scales(const struct folder *fo, const struct found *fd, struct entry *en,
		       struct err *e)
{
	struct buf b = BUF_INIT;
	struct found *p = NULL;
	const size_t n = strlen(fd->st->name) - strlen("blocks");
	int rc = find_part(fo, fd->st->name, n, "scales", &b, &p, e);
	buf_release(&b);
	TRY(rc);
	if (!p || fd->st->dtype != DT_U8 || p->st->dtype != DT_U8 ||
	    p->st->bytes * MX_BYTES != fd->st->bytes)
		return err_set(e, ERR_INPUT,
			       "%s: the scales of '%s' are missing or not one for each block",
			       fo->dir, fd->st->name);
	en->scales = p->st;
	en->scales_file = p->shard->st;
	return 0;
}

/* `shown`: the tensor's name in the model that is shown. */
static int add_fused(struct model_file *f, const struct found *fd, const char *shown, struct err *e)
{
	struct folder *fo = f->priv;
	int parts;
	int64_t experts, shape[2];
	const struct st_tensor *st = fd->st;
	const enum fused_kind k = fused_find(f->config, st->name, st->ndim, st->shape, &parts);
	struct entry en = { .st = st, .file = fd->shard->st };
	if (k == FUSED_SCALES)
		return 0;
	TRY(fused_shape(fo->dir, st->name, k, parts, st->ndim, st->shape, &experts, shape, e));
	if (k == FUSED_BLOCKS)
		TRY(find_scales(fo, fd, &en, e));
	for (int64_t x = 0; x < experts * parts; x++) {
		char name[256];
		struct model_tensor *t = &f->tensor[f->count];
		const uint64_t count = (uint64_t)shape[0] * (uint64_t)shape[1];
		fused_name(shown, x / parts, (int)(x % parts), name, sizeof name);
		*t = (struct model_tensor){ .name = arena_strdup(&f->mem, name),
					    .kind = k == FUSED_BLOCKS ? STORE_NF4 : STORE_PLAIN,
					    .dtype = k == FUSED_BLOCKS ? DT_BF16 : st->dtype,
					    .ggml_type = k == FUSED_BLOCKS ? GGML_MXFP4 : 0,
					    .ndim = k == FUSED_BIAS ? 1 : 2,
					    .shape = { shape[0], k == FUSED_BIAS ? 0 : shape[1] },
					    .count = count,
					    .bytes = k == FUSED_BLOCKS
							     ? count / 2 + count / MX_BLOCK
							     : count * dtype_size(st->dtype) };
		if (!t->name)
			return err_nomem(e, sizeof name, "a name");
		if (k == FUSED_ROWS)
			en.data = (const char *)st->data + (uint64_t)x * t->bytes;
		else
			en.fused = (struct fused){
				.kind = k,
				.expert = x / parts,
				.first = x % parts * (k == FUSED_HALVES ? shape[0] : 1),
				.step = k == FUSED_HALVES ? 1 : parts,
				.wide = shape[0] * parts,
			};
		fo->entry[f->count++] = en;
	}
	return 0;
}

/* Rows of one expert's module. Plain ones are stored by columns. */
static void read_fused(const struct entry *en, const struct model_tensor *t, int64_t row0,
		       int64_t rows, float *dst)
{
	const struct fused *u = &en->fused;
	const int64_t columns = t->ndim == 2 ? t->shape[1] : 1;
	const size_t size = dtype_size(en->st->dtype);
	const uint8_t *data = en->st->data;
	if (u->kind == FUSED_BLOCKS) {
		const uint8_t *scales = en->scales->data;
		for (int64_t r = row0; r < row0 + rows; r++, dst += columns) {
			const int64_t at = (u->expert * u->wide + u->first + r * u->step) *
					   (columns / MX_BLOCK);
			mx_expand(data + at * MX_BYTES, scales + at, dst, (uint64_t)columns);
		}
		return;
	}
	for (int64_t c = 0; c < columns; c++)
		for (int64_t r = 0, n; r < rows; r += n) {
			float v[256];
			const int64_t most = 256 / u->step,
				      at = (u->expert * columns + c) * u->wide + u->first +
					   (row0 + r) * u->step;
			n = rows - r < most ? rows - r : most;
			model_plain_to_f32(en->st->dtype, data + (size_t)at * size, v,
					   (uint64_t)((n - 1) * u->step + 1));
			for (int64_t i = 0; i < n; i++)
				dst[(r + i) * columns + c] = v[i * u->step];
		}
}

/* The name of a tensor in the model that is shown; NULL: it is not shown. */
static int shown_name(struct model_file *f, const char *name, const char **shown_p, struct err *e)
{
	char out[512];
	*shown_p = name;
	if (!f->inside)
		return 0;
	const char *shown = text_part_name(name, out, sizeof out);
	*shown_p = shown == out ? arena_strdup(&f->mem, out) : shown;
	return shown && !*shown_p ? err_nomem(e, sizeof out, "a name") : 0;
}

static int make_tensors(struct model_file *f, struct err *e)
{
	struct folder *fo = f->priv;
	size_t n = fo->nfound, all = 0;
	for (size_t i = 0; i < n; i++) {
		size_t parts;
		TRY(count_parts(f, fo->found[i].st, &parts, e));
		all += parts;
	}
	TRY(model_parts_check(f, n, all, e));
	all = all > n ? all : n;
	f->tensor = arena_alloc(&f->mem, (all + 1) * sizeof *f->tensor);
	fo->entry = arena_alloc(&f->mem, (all + 1) * sizeof *fo->entry);
	fo->whole = arena_alloc(&f->mem, (n + 1) * sizeof *fo->whole);
	fo->by_name = arena_alloc(&f->mem, (n + 1) * sizeof(struct found *));
	if (!f->tensor || !fo->entry || !fo->whole || !fo->by_name)
		return err_nomem(e, (all + 1) * sizeof *fo->entry, "a table of tensors");
	for (size_t i = 0; i < n; i++)
		fo->by_name[i] = &fo->found[i];
	qsort(fo->by_name, n, sizeof(struct found *), by_found_name);
	TRY(collect_parts(f, e));
	for (size_t i = 0; i < n; i++) {
		const struct found *fd = &fo->found[i];
		int parts;
		const char *shown;
		TRY(shown_name(f, fd->st->name, &shown, e));
		if (fd->part || !shown)
			continue;
		if (fused_find(f->config, fd->st->name, fd->st->ndim, fd->st->shape, &parts) !=
		    FUSED_NOT) {
			TRY(add_fused(f, fd, shown, e));
			continue;
		}
		struct model_tensor *t = &f->tensor[f->count];
		struct entry *en = &fo->entry[f->count];
		*en = fo->whole[i];
		en->st = fd->st;
		en->file = fd->shard->st;
		en->data = fd->st->data;
		if (en->part[BNB_STATE_NF4])
			TRY(bnb_open(fo->dir, fd->st->name, fd->st, en->part, &f->mem, t, &en->nf4,
				     e));
		else
			TRY(plain_tensor(fo, fd->st, t, e));
		t->name = shown;
		f->count++;
	}
	return 0;
}

/* Models with a part for pictures may have their chat template in a file of its own. */
static int processor_template(struct model_file *f, struct err *e)
{
	const char *path = NULL;
	json_t *doc = NULL;
	TRY(existing_path(f, "chat_template.json", &path, e));
	if (!path)
		return 0;
	TRY(json_parse_file(path, TEMPLATE_MAX, &doc, e));
	const char *text = chat_template_text(json_object_get(doc, "chat_template"));
	if (text)
		f->chat_template = arena_strdup(&f->mem, text);
	json_decref(doc);
	return text && !f->chat_template ? err_nomem(e, TEMPLATE_MAX, "a chat template") : 0;
}

static int open_tokenizer(struct model_file *f, struct err *e)
{
	const char *path = NULL;
	TRY(existing_path(f, "tokenizer.json", &f->tokenizer_path, e));
	TRY(existing_path(f, "tokenizer_config.json", &path, e));
	if (path)
		TRY(json_parse_file(path, INDEX_MAX, &f->tokenizer_config, e));
	TRY(existing_path(f, "chat_template.jinja", &path, e));
	if (!path) {
		f->chat_template =
			chat_template_text(json_object_get(f->tokenizer_config, "chat_template"));
		return f->chat_template ? 0 : processor_template(f, e);
	}
	struct buf b = BUF_INIT;
	TRY(buf_read_file(&b, path, TEMPLATE_MAX, e));
	f->chat_template = arena_strndup(&f->mem, b.p, b.n);
	buf_release(&b);
	return f->chat_template ? 0 : err_nomem(e, TEMPLATE_MAX, "a chat template");
}

/* The files say whether a language model has a head of its own: versions of transformers differ in
 * which part of the configuration does. */
static void tie(struct model_file *f)
{
	bool head = false;
	for (size_t i = 0; i < f->count; i++)
		head |= !strcmp(f->tensor[i].name, "lm_head.weight");
	json_object_set_new(f->config, "tie_word_embeddings", json_boolean(!head));
}

static int folder_open(struct model_file *f, struct err *e)
{
	struct folder *fo = f->priv = arena_alloc(&f->mem, sizeof *fo);
	const char *path = NULL, *only = NULL, *slash = strrchr(f->path, '/');
	struct stat st;
	if (!fo)
		return err_nomem(e, sizeof *fo, "a model file");
	fo->dir = f->path;
	if (stat(f->path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		only = slash ? slash + 1 : f->path;
		fo->dir = !slash ? "."
				 : arena_strndup(&f->mem, f->path,
						 slash == f->path ? 1 : (size_t)(slash - f->path));
		if (!fo->dir)
			return err_nomem(e, strlen(f->path), "a path");
	}
	TRY(existing_path(f, "config.json", &path, e));
	if (!path) {
		TRY(existing_path(f, "adapter_config.json", &path, e));
		return err_set(e, ERR_INPUT, "%s: %s", fo->dir,
			       path ? "is an adapter, not a model: give the model it was made for, "
				      "and this as the adapter"
				    : "has no config.json, so it is not a model's folder");
	}
	TRY(json_parse_file_in(path, CONFIG_MAX, JSON_MEMORY_CONFIG, &f->config, e));
	if (!json_is_object(f->config))
		return err_set(e, ERR_INPUT, "%s: must be a JSON object", path);
	json_t *text = NULL;
	TRY(text_part_config(f->config, path, &text, e));
	if (text) {
		json_decref(f->config);
		f->config = text;
		f->inside = TEXT_PART_INSIDE;
	}
	TRY(check_quantisation(f, e));
	TRY(open_files(f, only, e));
	TRY(make_tensors(f, e));
	if (text)
		tie(f);
	return open_tokenizer(f, e);
}

static void folder_close(struct model_file *f)
{
	struct folder *fo = f->priv;
	for (size_t i = 0; fo && i < fo->nshard; i++)
		st_close(fo->shard[i].st);
}

static const struct entry *entry_of(const struct model_file *f, const struct model_tensor *t)
{
	return &((const struct folder *)f->priv)->entry[t - f->tensor];
}

static int folder_read(struct model_file *f, const struct model_tensor *t, int64_t row0,
		       int64_t rows, float *dst, struct err *e)
{
	const struct entry *en = entry_of(f, t);
	uint64_t row = t->count / model_tensor_rows(t), first = row * (uint64_t)row0,
		 n = row * (uint64_t)rows;
	(void)e;
	if (en->fused.kind) {
		read_fused(en, t, row0, rows, dst);
		return 0;
	}
	if (t->kind == STORE_NF4) {
		bnb_expand(&en->nf4, first, n, dst);
		st_drop_range(en->file, en->nf4.packed + first / 2, n / 2);
		return 0;
	}
	const char *p = en->data + first * dtype_size(t->dtype);
	model_plain_to_f32(t->dtype, p, dst, n);
	st_drop_range(en->file, p, n * dtype_size(t->dtype));
	return 0;
}

static int folder_raw(struct model_file *f, const struct model_tensor *t, const void **p_p,
		      struct err *e)
{
	const struct entry *en = entry_of(f, t);
	if (en->fused.kind)
		return err_set(e, ERR_UNSUPPORTED, "%s: '%s' is part of a tensor of all experts",
			       f->path, t->name);
	if ((uintptr_t)en->data % dtype_size(t->dtype))
		return err_set(e, ERR_UNSUPPORTED, "%s: tensor '%s' is not aligned in its file",
			       f->path, t->name);
	*p_p = en->data;
	return 0;
}

static int folder_nf4(struct model_file *f, const struct model_tensor *t, struct nf4_view *v_p,
		      struct err *e)
{
	const struct entry *en = entry_of(f, t);
	const struct fused *u = &en->fused;
	if (u->kind) {
		const uint64_t each = (uint64_t)(t->shape[1] / MX_BLOCK),
			       at = (uint64_t)(u->expert * u->wide + u->first) * each,
			       step = each * (uint64_t)u->step;
		return mx_view((const uint8_t *)en->st->data + at * MX_BYTES, step * MX_BYTES,
			       (const uint8_t *)en->scales->data + at, step, t->shape[0],
			       t->shape[1], v_p, e);
	}
	*v_p = en->nf4;
	return 0;
}

static void folder_drop(struct model_file *f, const struct model_tensor *t)
{
	const struct entry *en = entry_of(f, t);
	if (en->fused.kind) { /* others of the tensor are needed */
		const uint64_t each = en->st->bytes / (uint64_t)en->st->shape[0];
		st_drop_range(en->file,
			      (const char *)en->st->data + (uint64_t)en->fused.expert * each, each);
		return;
	}
	if (t->kind == STORE_PLAIN) { /* may be a part of its tensor */
		st_drop_range(en->file, en->data, t->bytes);
		return;
	}
	st_drop(en->file, en->st);
	for (int i = 0; i < BNB_PARTS; i++)
		if (en->part[i])
			st_drop(en->part_file[i], en->part[i]);
}

const struct model_format format_safetensors = {
	.name = "safetensors",
	.claims = claims,
	.open = folder_open,
	.close = folder_close,
	.read = folder_read,
	.raw = folder_raw,
	.drop = folder_drop,
	.nf4 = folder_nf4,
};
