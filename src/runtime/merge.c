/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - see merge.h. Weights pass through row by row: a model larger than memory can
 * be merged. */
#include "runtime/merge.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/gguf_write.h"
#include "file/safetensors.h"
#include "model/stage.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merger {
	const struct merge_options *o;
	struct model_file *file;
	struct model_config cfg;
	struct peft_adapter ad;
	struct arena arena;
	struct dev *dev; /* the CPU, for 4-bit weights */
	char held[256];  /* name of the weight in `quant` */
	struct param quant;
	float *part; /* merged rows */
	size_t part_cap;
	uint64_t done, all; /* tensors */
};

static const struct peft_pair *pair_of(const struct merger *m, const char *name)
{
	size_t n = strlen(name);
	if (n < 8 || strcmp(name + n - 7, ".weight"))
		return NULL;
	for (size_t i = 0; i < m->ad.npair; i++)
		if (strlen(m->ad.pair[i].module) == n - 7 &&
		    !strncmp(m->ad.pair[i].module, name, n - 7))
			return &m->ad.pair[i];
	return NULL;
}

static bool is_layer_linear(const char *name)
{
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		const char *p = strstr(name, linear_path(l));
		if (p && !strcmp(p + strlen(linear_path(l)), ".weight"))
			return true;
	}
	return false;
}

struct rows_ctx {
	struct merger *m;
	const struct model_tensor *t;
};

static int file_rows(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	struct rows_ctx *r = ctx;
	return model_file_read_f32(r->m->file, r->t, row0, rows, dst, e);
}

/* Rows of the base weight, through NF4 and back where the adapter was trained on that. */
static int base_rows(struct merger *m, const struct model_tensor *t, int64_t row0, int64_t rows,
		     float *dst, struct err *e)
{
	if (!m->o->dequantized || t->kind == STORE_NF4 || !is_layer_linear(t->name))
		return model_file_read_f32(m->file, t, row0, rows, dst, e);
	if (strcmp(m->held, t->name)) {
		struct rows_ctx ctx = { m, t };
		param_release(&m->quant);
		m->held[0] = 0;
		TRY(param_quantize_nf4(&m->quant, m->dev, t->name, t->shape, m->o->double_quant,
				       file_rows, &ctx, e));
		snprintf(m->held, sizeof m->held, "%s", t->name);
	}
	return nf4_expand_host(&m->quant, row0, rows, dst, e);
}

static void add_product(const struct peft_pair *p, int64_t r, float scale, int64_t row0,
			int64_t rows, float *dst)
{
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < rows; i++) {
		float *w = dst + i * p->in;
		for (int64_t k = 0; k < r; k++) {
			float b = scale * p->b[(row0 + i) * r + k];
			const float *a = p->a + k * p->in;
			for (int64_t c = 0; c < p->in; c++)
				w[c] += b * a[c];
		}
	}
}

static int merged_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		       struct err *e)
{
	struct merger *m = ctx;
	const struct model_tensor *t = model_file_find(m->file, name);
	if (!t)
		return err_set(e, ERR_INPUT, "%s: there is no tensor '%s'", m->o->model, name);
	TRY(base_rows(m, t, row0, rows, dst, e));
	const struct peft_pair *p = pair_of(m, name);
	if (p)
		add_product(p, m->ad.cfg.r, (float)peft_scale(&m->ad.cfg), row0, rows, dst);
	if (row0 + rows == t->shape[0]) {
		model_file_drop(m->file, t);
		if (m->o->part)
			m->o->part(m->o->ctx, ++m->done, m->all);
	}
	return 0;
}

/* Bytes [off, off+n) of an output tensor: whole rows are merged, and the requested part
 * is copied. */
static int tensor_bytes_out(void *ctx, const struct st_spec *s, uint64_t off, uint64_t n, void *dst,
			    struct err *e)
{
	struct merger *m = ctx;
	uint64_t size = dtype_size(s->dtype), cols = s->ndim == 2 ? (uint64_t)s->shape[1] : 1,
		 row_bytes = cols * size;
	uint64_t row0 = off / row_bytes, row1 = (off + n + row_bytes - 1) / row_bytes,
		 count = (row1 - row0) * cols;
	if (!mem_grow(&m->part, &m->part_cap, count * 2, sizeof *m->part))
		return err_nomem(e, count * 8, s->name);
	TRY(merged_rows(m, s->name, (int64_t)row0, (int64_t)(row1 - row0), m->part, e));
	char *bytes = (char *)(m->part + count);
	dtype_from_f32(s->dtype, m->part, bytes, count);
	memcpy(dst, bytes + (off - row0 * row_bytes), n);
	return 0;
}

static int copy_file(const struct merger *m, const char *name, const char *dir, struct err *e)
{
	char from[4096], to[4096];
	snprintf(from, sizeof from, "%s/%s", m->o->model, name);
	snprintf(to, sizeof to, "%s/%s", dir, name);
	FILE *f = fopen(from, "rb");
	if (!f)
		return 0; /* a model need not have all of them */
	struct atomic_file out;
	int rc = atomic_begin(to, &out, e);
	char part[65536];
	size_t n;
	while (rc >= 0 && (n = fread(part, 1, sizeof part, f)) > 0) {
		rc = atomic_write(&out, part, n, e);
		if (rc < 0)
			atomic_abort(&out);
	}
	fclose(f);
	return rc < 0 ? rc : atomic_commit(&out, e);
}

static int write_folder(struct merger *m, const char *dir, struct err *e)
{
	static const char *const beside[] = { "tokenizer.json",
					      "tokenizer_config.json",
					      "special_tokens_map.json",
					      "chat_template.jinja",
					      "generation_config.json",
					      "tokenizer.model",
					      "vocab.json",
					      "merges.txt",
					      "added_tokens.json" };
	static const char *const dtype_words[] = {
		[DT_F32] = "float32", [DT_BF16] = "bfloat16", [DT_F16] = "float16"
	};
	size_t n = 0;
	struct st_spec *spec = mem_array(model_file_count(m->file), sizeof *spec);
	if (!spec)
		return err_nomem(e, model_file_count(m->file) * sizeof *spec, "the tensors");
	for (size_t i = 0; i < model_file_count(m->file); i++) {
		const struct model_tensor *t = model_file_tensor(m->file, i);
		if (model_knows_tensor(&m->cfg, t->name) != 1)
			continue;
		spec[n] =
			(struct st_spec){ .name = t->name, .dtype = m->o->dtype, .ndim = t->ndim };
		memcpy(spec[n++].shape, t->shape, sizeof t->shape);
	}
	m->all = n;
	char path[4096];
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	int rc = st_write(path, spec, n, NULL, tensor_bytes_out, m, e);
	mem_free(spec);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_LEN(beside); i++)
		TRY(copy_file(m, beside[i], dir, e));
	json_t *config = json_deep_copy(model_file_config(m->file));
	json_object_del(config, "quantization_config");
	json_object_del(config, "dtype");
	json_object_set_new(config, "torch_dtype", json_string(dtype_words[m->o->dtype]));
	char *text = json_dumps(config, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	snprintf(path, sizeof path, "%s/config.json", dir);
	rc = text ? atomic_write_file(path, text, strlen(text), e)
		  : err_nomem(e, 4096, "config.json");
	free(text);
	json_decref(config);
	return rc;
}

/* A GGUF's rotary factors have no name in config.json that transformers would compute in the
 * same way. */
static int check_folder(const struct merger *m, struct err *e)
{
	const json_t *rope = json_object_get(model_file_config(m->file), "rope_scaling");
	const char *type = json_string_value(json_object_get(rope, "rope_type"));
	if (type && !strcmp(type, "gguf_factors"))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: its rope factors cannot be written into a folder's "
			       "config.json: merge into a .gguf file",
			       m->o->model);
	return 0;
}

static int open_parts(struct merger *m, struct err *e)
{
	const struct merge_options *o = m->o;
	TRY(model_file_open(o->model, &m->file, e));
	TRY(model_config_read(model_file_config(m->file), o->model, &m->cfg, e));
	TRY(source_check_file(m->file, &m->cfg, e));
	TRY(peft_read(o->adapter, &m->arena, &m->ad, e));
	TRY(dev_open("cpu", &m->dev, e));
	for (size_t i = 0; i < m->ad.npair; i++) {
		const struct peft_pair *p = &m->ad.pair[i];
		char name[256];
		snprintf(name, sizeof name, "%s.weight", p->module);
		const struct model_tensor *t = model_file_find(m->file, name);
		if (!t || t->ndim != 2 || t->shape[0] != p->out || t->shape[1] != p->in)
			return err_set(e, ERR_INPUT,
				       "%s: the adapter's %s [%lld, %lld] does not fit %s",
				       o->adapter, p->module, (long long)p->out, (long long)p->in,
				       o->model);
	}
	return 0;
}

int merge(const struct merge_options *o, struct err *e)
{
	struct merger m = { .o = o };
	size_t n = strlen(o->out);
	int rc = open_parts(&m, e);
	if (rc >= 0 && n > 5 && !strcmp(o->out + n - 5, ".gguf")) {
		m.all = model_file_count(m.file);
		rc = gguf_write_model(o->out, m.file, o->q8_0 ? GGUF_Q8_0 : GGUF_F16, merged_rows,
				      &m, e);
	} else if (rc >= 0 && (rc = check_folder(&m, e)) >= 0) {
		char *tmp;
		rc = atomic_dir_begin(o->out, &tmp, e);
		if (rc >= 0) {
			rc = write_folder(&m, tmp, e);
			if (rc >= 0)
				rc = atomic_dir_commit(o->out, tmp, e);
			if (rc < 0) {
				struct err ignored;
				dir_remove(tmp, &ignored);
			}
			mem_free(tmp);
		}
	}
	param_release(&m.quant);
	mem_free(m.part);
	dev_close(m.dev);
	model_file_close(m.file);
	arena_release(&m.arena);
	return rc;
}
