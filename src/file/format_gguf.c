/* SPDX-License-Identifier: Apache-2.0 */
/* format_gguf.c - a GGUF file seen as a Hugging Face model: with the names, the shapes and the row
 * order of Q and K that a Hugging Face model has.
 *
 * Policy: every tensor must be one of the family (or rope_freqs.weight, which becomes part of the
 * configuration); a file with other tensors is another model and is refused. Blocks are expanded
 * row by row into the caller's memory, and the file's pages are released at once. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/open.h"
#include "file/fused.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/gguf_config.h"
#include "file/gguf_layout.h"
#include "file/gguf_names.h"
#include "file/model_format.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beside each model_tensor. */
struct entry {
	const struct gguf_tensor *g;
	const uint8_t *data; /* of g, or of one expert in it */
	struct gguf_layout layout;
};

struct gguf_model {
	struct gguf g;
	const struct gguf_arch *arch;
	struct gguf_heads heads;
	long long extra; /* layers behind the last one, which predict further tokens */
	struct entry *entry;
};

static bool claims(const char *path)
{
	char magic[4] = "";
	struct stat st;
	size_t n = strlen(path);
	if (stat(path, &st) < 0 || S_ISDIR(st.st_mode))
		return false;
	if (n > 5 && !strcmp(path + n - 5, ".gguf"))
		return true;
	int fd;
	struct err ignored;
	if (open_read(path, &fd, NULL, &ignored) < 0)
		return false;
	bool yes = read(fd, magic, 4) == 4 && !memcmp(magic, "GGUF", 4);
	close(fd);
	return yes;
}

static enum dtype plain_dtype(int type)
{
	switch (type) {
	case GGML_F32:
		return DT_F32;
	case GGML_F16:
		return DT_F16;
	case GGML_BF16:
		return DT_BF16;
	case GGML_F64:
		return DT_F64;
	case GGML_I8:
		return DT_I8;
	case GGML_I32:
		return DT_I32;
	case GGML_I64:
		return DT_I64;
	default:
		return DT_COUNT;
	}
}

/* A tensor under the name in `b`: g itself, or part x of n, the `halves` of one expert after the
 * other. */
static int add_part(struct model_file *f, struct gguf_model *m, const struct gguf_tensor *g,
		    struct buf *b, int64_t x, int64_t n, int64_t halves, struct err *e)
{
	struct model_tensor *t = &f->tensor[f->count];
	struct entry *en = &m->entry[f->count];
	t->name = b->failed ? NULL : arena_strdup(&f->mem, b->p);
	if (!t->name)
		return err_nomem(e, 128, "a name");
	t->dtype = plain_dtype(g->type);
	t->kind = t->dtype == DT_COUNT ? STORE_BLOCK : STORE_PLAIN;
	if (g->type == GGML_MXFP4 && n > 0 && g->ndim == 3) { /* fused.h */
		t->kind = STORE_NF4;
		t->dtype = DT_BF16;
	}
	if (t->kind == STORE_BLOCK)
		t->dtype = DT_F32;
	t->ggml_type = g->type;
	t->ndim = g->ndim - (n > 0);
	for (int i = 0; i < t->ndim; i++)
		t->shape[i] = g->ne[t->ndim - 1 - i] / (i ? 1 : halves);
	if (t->ndim == 1 && strstr(t->name, ".shared_expert_gate.weight")) { /* [1, in] */
		t->ndim = 2;
		t->shape[1] = t->shape[0];
		t->shape[0] = 1;
	}
	if (t->ndim == 2 && (strstr(t->name, ".conv1d.") || strstr(t->name, ".conv.conv."))) {
		/* a vector (model_file.h) */
		t->ndim = 1;
		t->shape[0] = (int64_t)g->count;
		t->shape[1] = 0;
	}
	t->count = n ? g->count / (uint64_t)n : g->count;
	t->bytes = n ? g->bytes / (uint64_t)n : g->bytes;
	en->g = g;
	en->data = g->data + (uint64_t)x * t->bytes;
	TRY(gguf_layout_of(m->arch, &m->heads, t->name, t->shape[0], t->ndim > 1 ? t->shape[1] : 1,
			   f->path, &en->layout, e));
	f->count++;
	return 0;
}

static int64_t experts_of(const struct model_file *f)
{
	const struct gguf_model *m = f->priv;
	return json_integer_value(json_object_get(f->config, gguf_experts_key(m->arch->experts)));
}

/* How many tensors of the model a tensor of the file can be. */
static size_t parts_of(const struct model_file *f, const struct gguf_tensor *g)
{
	const bool experts = strstr(g->name, "_exps.") && g->ne[g->ndim - 1] == experts_of(f);
	return experts ? (size_t)experts_of(f) * (strstr(g->name, "_gate_up_") ? 2 : 1) : 1;
}

/* One tensor for each expert, or one of each half. `starred` is their name. */
static int add_experts(struct model_file *f, struct gguf_model *m, const struct gguf_tensor *g,
		       const char *starred, struct err *e)
{
	const int64_t n = experts_of(f);
	if (g->ndim < 2 || g->ne[g->ndim - 1] != n)
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' has %lld experts; '%s.expert_count' is %lld",
			       f->path, g->name, (long long)(g->ndim < 2 ? 0 : g->ne[g->ndim - 1]),
			       m->arch->name, (long long)n);
	struct buf up = BUF_INIT;
	const int64_t halves = gguf_name_up_to_hf(m->arch, g->name, &up) ? 2 : 1;
	int rc = up.failed ? err_nomem(e, 128, "a name") : 0;
	if (rc >= 0 && halves > 1 && (g->ndim != 3 || g->ne[1] % 2))
		rc = err_set(e, ERR_INPUT, "%s: tensor '%s' is not gate and up of experts", f->path,
			     g->name);
	for (int64_t x = 0; x < n * halves && rc >= 0; x++) {
		struct buf b = BUF_INIT;
		gguf_expert_name(x % halves ? up.p : starred, x / halves, &b);
		rc = add_part(f, m, g, &b, x, n * halves, halves, e);
		buf_release(&b);
	}
	buf_release(&up);
	return rc;
}

/* Of a layer that predicts further tokens. */
static bool is_extra(const struct model_file *f, const char *name)
{
	const long long n = json_integer_value(json_object_get(f->config, "num_hidden_layers"));
	const long long extra = ((const struct gguf_model *)f->priv)->extra;
	long long layer = -1;
	return sscanf(name, "blk.%lld.", &layer) == 1 && layer >= n && layer - n < extra;
}

static int add_tensor(struct model_file *f, struct gguf_model *m, const struct gguf_tensor *g,
		      struct err *e)
{
	struct buf b = BUF_INIT;
	int64_t layer = -1;
	if (!strcmp(g->name, "rope_freqs.weight") || !strncmp(g->name, "rope_factors_", 13) ||
	    is_extra(f, g->name))
		return 0;
	if (!gguf_name_to_hf(m->arch, g->name, &b, &layer) ||
	    layer >= json_integer_value(json_object_get(f->config, "num_hidden_layers"))) {
		buf_release(&b);
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the tensor '%s' does not belong to a %s model of %lld layers",
			       f->path, g->name, m->arch->name,
			       (long long)json_integer_value(
				       json_object_get(f->config, "num_hidden_layers")));
	}
	const bool experts = !b.failed && strchr(b.p, '*');
	int rc = experts ? add_experts(f, m, g, b.p, e) : add_part(f, m, g, &b, 0, 0, 1, e);
	buf_release(&b);
	return rc;
}

/* The tokenizer's pairs, their keys unchanged. */
static int read_vocab(struct model_file *f, struct gguf_model *m, struct err *e)
{
	uint64_t memory = 0;
	for (size_t i = 0; i < m->g.nkv; i++) {
		const struct gguf_kv *kv = &m->g.kv[i];
		const uint64_t more = gguf_kv_memory(kv);
		json_t *v = NULL;
		/* Some files also have the whole tokenizer.json or a compiled character map, which
		 * are not used. */
		if (strncmp(kv->key, "tokenizer.", 10) != 0 ||
		    !strcmp(kv->key, "tokenizer.huggingface.json") ||
		    !strcmp(kv->key, "tokenizer.ggml.precompiled_charsmap"))
			continue;
		if (more > JSON_MEMORY_TABLE || (memory += more) > JSON_MEMORY_TABLE)
			return err_set(e, ERR_INPUT,
				       "%s: '%s': too many values: those of the tokenizer would "
				       "take more than %llu MiB of memory",
				       f->path, kv->key, JSON_MEMORY_TABLE >> 20);
		if (!f->vocab && !(f->vocab = json_object()))
			return err_nomem(e, 1024, "a vocabulary");
		TRY(gguf_kv_json(&m->g, kv, &v, e));
		if (json_object_set_new(f->vocab, kv->key, v) < 0)
			return err_nomem(e, kv->raw_bytes, "a vocabulary");
	}
	const char *kind = json_string_value(json_object_get(f->vocab, "tokenizer.ggml.model"));
	if (kind && !strcmp(kind, "none")) { /* it says that it has none */
		json_decref(f->vocab);
		f->vocab = NULL;
	}
	f->chat_template = chat_template_text(json_object_get(f->vocab, "tokenizer.chat_template"));
	return 0;
}

static int model_open(struct model_file *f, struct err *e)
{
	struct gguf_model *m = f->priv = arena_alloc(&f->mem, sizeof *m);
	if (!m)
		return err_nomem(e, sizeof *m, "a model file");
	TRY(gguf_open(f->path, &m->g, e));
	if (gguf_is_adapter(&m->g))
		return err_set(e, ERR_INPUT,
			       "%s: is an adapter for llama.cpp (--lora), not a model: give the "
			       "model it was made for, and as the adapter the folder that it was "
			       "made from",
			       f->path);
	TRY(gguf_config(&m->g, &m->arch, &f->config, e));
	m->heads.dim = json_integer_value(json_object_get(f->config, "head_dim"));
	m->extra = json_integer_value(json_object_get(f->config, "num_nextn_predict_layers"));
	if (m->arch->linear) {
		json_object_del(f->config, "num_nextn_predict_layers");
		TRY(gguf_linear_heads(f->config, f->path, &m->heads, e));
	}
	size_t n = 0;
	for (size_t i = 0; i < m->g.ntensor; i++)
		n += parts_of(f, &m->g.tensor[i]);
	TRY(model_parts_check(f, m->g.ntensor, n, e));
	f->tensor = arena_alloc(&f->mem, (n + 1) * sizeof *f->tensor);
	m->entry = arena_alloc(&f->mem, (n + 1) * sizeof *m->entry);
	if (!f->tensor || !m->entry)
		return err_nomem(e, (n + 1) * sizeof *f->tensor, "a table of tensors");
	for (size_t i = 0; i < m->g.ntensor; i++)
		TRY(add_tensor(f, m, &m->g.tensor[i], e));
	return read_vocab(f, m, e);
}

static void model_close(struct model_file *f)
{
	struct gguf_model *m = f->priv;
	if (!m)
		return;
	gguf_close(&m->g);
}

static const struct entry *entry_of(const struct model_file *f, const struct model_tensor *t)
{
	return &((const struct gguf_model *)f->priv)->entry[t - f->tensor];
}

/* n rows that lie at p, one after the other. */
static int read_run(const struct model_file *f, const struct model_tensor *t, const uint8_t *p,
		    int64_t n, float *dst, struct err *e)
{
	const struct entry *en = entry_of(f, t);
	const int64_t columns = (int64_t)(t->count / (uint64_t)t->shape[0]);
	const uint64_t count = (uint64_t)(columns * n);
	float *x = en->layout.columns.per ? mem_array(count, sizeof *x) : dst;
	if (!x)
		return err_nomem(e, count * sizeof *x, t->name);
	int rc = ggml_dequantize(en->g->type, p, x, count, e);
	if (rc >= 0 && x != dst)
		hf_columns_of_gguf(&en->layout, x, dst, n, columns);
	if (x != dst)
		mem_free(x);
	TRY(rc);
	return hf_numbers_of_gguf(&en->layout, dst, count, t->name, e);
}

static int model_read(struct model_file *f, const struct model_tensor *t, int64_t row0,
		      int64_t rows, float *dst, struct err *e)
{
	const struct gguf_model *m = f->priv;
	const struct entry *en = entry_of(f, t);
	/* a vector in blocks cannot be divided into rows of bytes */
	if (t->ndim == 1 && t->kind == STORE_BLOCK)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the vector '%s' is stored as %s, only matrices may be", f->path,
			       t->name, ggml_type_name(en->g->type));
	const int64_t row = (int64_t)(t->count / (uint64_t)t->shape[0]),
		      bytes = (int64_t)(t->bytes / (uint64_t)t->shape[0]);
	int64_t from = t->shape[0], to = 0; /* rows of the file that were read */
	for (int64_t r = row0, n; r < row0 + rows; r += n, dst += n * row) {
		const int64_t at = gguf_row_of_hf(&en->layout, r);
		n = gguf_layout_run(&en->layout, r, row0 + rows);
		TRY(read_run(f, t, en->data + at * bytes, n, dst, e));
		from = at < from ? at : from;
		to = at + n > to ? at + n : to;
	}
	if (to > from)
		map_drop(&m->g.map, en->data + from * bytes, (uint64_t)((to - from) * bytes));
	return 0;
}

static int model_raw(struct model_file *f, const struct model_tensor *t, const void **p_p,
		     struct err *e)
{
	const struct entry *en = entry_of(f, t);
	if (gguf_layout_moves(&en->layout) || en->layout.number != GGUF_SAME)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the numbers of '%s' are stored otherwise or in another order",
			       f->path, t->name);
	*p_p = en->data;
	return 0;
}

/* A matrix in MXFP4, its blocks taken apart and the numbers in the order of a view. */
static int model_nf4(struct model_file *f, const struct model_tensor *t, struct nf4_view *v_p,
		     struct err *e)
{
	const struct entry *en = entry_of(f, t);
	const uint64_t n = t->count / MX_BLOCK, each = (uint64_t)(t->shape[1] / MX_BLOCK);
	uint8_t *parts = mem_alloc(n * (MX_BYTES + 1)), *scales;
	if (!parts)
		return err_nomem(e, n * (MX_BYTES + 1), t->name);
	scales = parts + n * MX_BYTES;
	for (uint64_t b = 0; b < n; b++) {
		const uint8_t *p = en->data + b * (MX_BYTES + 1);
		scales[b] = p[0];
		for (int i = 0; i < MX_BYTES; i++) { /* numbers 2 i and 2 i + 1 */
			const int at = 1 + 2 * i % 16, high = i < 8 ? 0 : 4;
			parts[b * MX_BYTES + (uint64_t)i] =
				(uint8_t)((p[at] >> high & 15) | (p[at + 1] >> high & 15) << 4);
		}
	}
	int rc = mx_view(parts, each * MX_BYTES, scales, each, t->shape[0], t->shape[1], v_p, e);
	mem_free(parts);
	return rc;
}

static void model_drop(struct model_file *f, const struct model_tensor *t)
{
	map_drop(&((const struct gguf_model *)f->priv)->g.map, entry_of(f, t)->data, t->bytes);
}

const struct model_format format_gguf = {
	.name = "gguf",
	.claims = claims,
	.open = model_open,
	.close = model_close,
	.read = model_read,
	.raw = model_raw,
	.drop = model_drop,
	.nf4 = model_nf4,
};
