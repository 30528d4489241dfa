/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - see merge.h. Weights pass through row by row: a model larger than memory can
 * be merged. */
#include "runtime/merge.h"

#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/ggml_blocks.h"
#include "file/gguf_write.h"
#include "file/output.h"
#include "file/safetensors.h"
#include "model/stage.h"
#include "runtime/adapter_fused.h"
#include "runtime/merge_fused.h"
#include "runtime/model_folder.h"
#include "runtime/runtime.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct merger {
	const struct merge_options *o;
	struct model_file *file;
	struct model_config cfg;
	struct peft_adapter ad;
	struct arena arena;
	bool untied;     /* an adapter on an end of a model whose head was its embedding */
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
	if (!m->o->dequantized || t->kind == STORE_NF4 || !linear_is_quantized(t->name))
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

static const struct peft_saved *saved_of(const struct merger *m, const char *name)
{
	for (size_t i = 0; i < m->ad.nsaved; i++) {
		const size_t n = strlen(m->ad.saved[i].module);
		if (!strncmp(m->ad.saved[i].module, name, n) && !strcmp(name + n, ".weight"))
			return &m->ad.saved[i];
	}
	return NULL;
}

/* Rows of W + s B A, with magnitudes those of m (W + s B A) / |W + s B A|. */
static void add_product(const struct peft_pair *p, int64_t row0, int64_t rows, float *dst)
{
	const float scale = (float)p->scale;
	const int64_t r = p->r;
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < rows; i++) {
		float *w = dst + i * p->in;
		double square = 0;
		for (int64_t k = 0; k < r; k++) {
			float b = scale * p->b[(row0 + i) * r + k];
			const float *a = p->a + k * p->in;
			for (int64_t c = 0; c < p->in; c++)
				w[c] += b * a[c];
		}
		if (!p->m)
			continue;
		for (int64_t c = 0; c < p->in; c++)
			square += (double)w[c] * (double)w[c];
		const float by = square > 0 ? p->m[row0 + i] / (float)sqrt(square) : 0;
		for (int64_t c = 0; c < p->in; c++)
			w[c] *= by;
	}
}

static enum dtype dtype_of(const struct merger *m, const struct model_tensor *t)
{
	/* rounded, it would choose other experts */
	const bool exact = name_is_correction(t->name);
	return m->o->as_base || exact ? t->dtype : m->o->dtype;
}

/* Whether a folder can hold them; what becomes a GGUF is looked at where it is written. */
static int check_numbers(const struct merger *m, const struct model_tensor *t, const float *x,
			 int64_t n, struct err *e)
{
	const bool f16 = dtype_of(m, t) == DT_F16;
	for (int64_t i = 0; i < n; i++)
		if (!isfinite(x[i]) || (f16 && fabsf(x[i]) >= 65520))
			return err_set(
				e, ERR_INPUT, "%s: '%s' with the adapter has the number %g%s",
				m->o->model, t->name, (double)x[i],
				isfinite(x[i]) ? ", which float16 does not have: --type bf16" : "");
	return 0;
}

static int merged_rows(void *ctx, const char *name, int64_t row0, int64_t rows, float *dst,
		       struct err *e)
{
	struct merger *m = ctx;
	const struct model_tensor *t = model_file_find(m->file, name);
	if (m->o->stop && *m->o->stop)
		return err_set(e, ERR_CANCELLED, "stopped; %s was not written", m->o->out);
	if (!t)
		return err_set(e, ERR_INPUT, "%s: there is no tensor '%s'", m->o->model, name);
	const struct peft_saved *s = saved_of(m, name);
	const struct peft_pair *p = pair_of(m, name);
	if (s)
		memcpy(dst, s->v + row0 * s->cols, (size_t)(rows * s->cols) * sizeof *dst);
	else
		TRY(base_rows(m, t, row0, rows, dst, e));
	if (p)
		add_product(p, row0, rows, dst);
	if (p || s)
		TRY(check_numbers(m, t, dst, rows * t->shape[1], e));
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
	if (s->user)
		return merge_fused_bytes(s, off, n, dst, merged_rows, m, e);
	/* rows as they are read: some files have vectors as matrices (model_file_shape()) */
	const struct model_tensor *t = model_file_find(m->file, s->name);
	uint64_t size = dtype_size(s->dtype), cols = t->ndim == 2 ? (uint64_t)t->shape[1] : 1,
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

#define MERGE_MARK "heteroshard.json"

/* Of most numbers. */
static enum dtype usual_dtype(const struct merger *m)
{
	uint64_t count[3] = { 0 }, *most = &count[0];
	static const enum dtype of[] = { DT_F32, DT_BF16, DT_F16 };
	for (size_t i = 0; i < model_file_count(m->file); i++)
		for (size_t k = 0; k < ARRAY_LEN(of); k++)
			if (model_file_tensor(m->file, i)->dtype == of[k])
				count[k] += model_file_tensor(m->file, i)->count;
	for (size_t k = 1; k < ARRAY_LEN(of); k++)
		most = count[k] > *most ? &count[k] : most;
	return of[most - count];
}

static int write_folder(struct merger *m, const char *dir, struct err *e)
{
	static const char mark[] = "{\"written_by\": \"heteroshard merge\"}\n";
	size_t n = 0;
	const size_t most = model_file_count(m->file) + 4 * (size_t)m->cfg.layers;
	struct st_spec *spec = mem_array(most, sizeof *spec);
	if (!spec)
		return err_nomem(e, most * sizeof *spec, "the tensors");
	for (size_t i = 0; i < model_file_count(m->file); i++) {
		const struct model_tensor *t = model_file_tensor(m->file, i);
		if (model_knows_tensor(&m->cfg, t->name) == 1)
			m->all++;
		if (model_knows_tensor(&m->cfg, t->name) != 1 || merge_is_fused(&m->cfg, t->name))
			continue;
		spec[n] = (struct st_spec){ .name = t->name, .dtype = dtype_of(m, t) };
		memcpy(spec[n].shape, t->shape, sizeof t->shape);
		spec[n].ndim = model_file_shape(&m->cfg, t->name, t->ndim, spec[n].shape);
		n++;
	}
	const enum dtype usual = m->o->as_base ? usual_dtype(m) : m->o->dtype;
	char path[4096];
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	int rc = merge_fused_specs(&m->cfg, usual, &m->arena, spec, &n, e);
	if (!rc)
		rc = st_write(path, spec, n, NULL, tensor_bytes_out, m, e);
	mem_free(spec);
	if (rc < 0)
		return rc;
	TRY(model_folder_write(m->file, dir, usual, e));
	/* by this mark --force knows what it may replace */
	return atomic_write_in(dir, MERGE_MARK, mark, sizeof mark - 1, e);
}

static int check_part(const struct merger *m, const char *module, int64_t rows, int64_t cols,
		      struct err *e)
{
	char name[256];
	snprintf(name, sizeof name, "%s.weight", module);
	const struct model_tensor *t = model_file_find(m->file, name);
	if (!t || t->ndim != 2 || t->shape[0] != rows || t->shape[1] != cols)
		return err_set(e, ERR_INPUT, "%s: the adapter's %s [%lld, %lld] does not fit %s",
			       m->o->adapter, module, (long long)rows, (long long)cols,
			       m->o->model);
	return 0;
}

/* The last pair on the embedding or the head; NULL: all are in layers. */
static const struct peft_pair *end_of(const struct peft_adapter *ad)
{
	const struct peft_pair *end = NULL;
	for (size_t i = 0; i < ad->npair; i++)
		if (strncmp(ad->pair[i].module, "model.layers.", 13) != 0)
			end = &ad->pair[i];
	return end;
}

static int open_parts(struct merger *m, struct err *e)
{
	const struct merge_options *o = m->o;
	TRY(model_file_open(o->model, &m->file, e));
	TRY(model_config_read(model_file_config(m->file), o->model, &m->cfg, e));
	TRY(source_check_file(m->file, &m->cfg, e));
	TRY(adapter_read(o->adapter, &m->cfg, &m->arena, &m->ad, e));
	TRY(adapter_check_base(o->adapter, &m->ad, o->model, e));
	/* of a head that is the embedding the adapter changes only one use */
	if (m->ad.nsaved || end_of(&m->ad)) {
		m->untied = m->cfg.tied;
		TRY(runtime_untie(m->file, &m->cfg, e));
	}
	TRY(dev_open("cpu", &m->dev, e));
	for (size_t i = 0; i < m->ad.npair; i++)
		TRY(check_part(m, m->ad.pair[i].module, m->ad.pair[i].out, m->ad.pair[i].in, e));
	for (size_t i = 0; i < m->ad.nsaved; i++)
		TRY(check_part(m, m->ad.saved[i].module, m->ad.saved[i].rows, m->ad.saved[i].cols,
			       e));
	return 0;
}

/* ---- before the work ---- */

static bool is_gguf_name(const char *path)
{
	size_t n = strlen(path);
	return n > 5 && !strcmp(path + n - 5, ".gguf");
}

/* Everything in it is what merge writes. */
static bool is_our_folder(const char *dir)
{
	bool mark = false, stray = false;
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));) {
		const char *s = f->d_name;
		if (!strcmp(s, ".") || !strcmp(s, ".."))
			continue;
		mark |= !strcmp(s, MERGE_MARK);
		stray |= strcmp(s, MERGE_MARK) != 0 && strcmp(s, "model.safetensors") != 0 &&
			 !model_folder_has(s);
	}
	if (d)
		closedir(d);
	return mark && !stray;
}

static int check_out(const struct merge_options *o, struct err *e)
{
	const char *const input[] = { o->model, o->adapter };
	struct stat st;
	TRY(output_not_input(o->out, input, ARRAY_LEN(input), e));
	if (lstat(o->out, &st) < 0)
		return 0;
	bool ours = S_ISDIR(st.st_mode)   ? !is_gguf_name(o->out) && is_our_folder(o->out)
		    : S_ISREG(st.st_mode) ? is_gguf_name(o->out) && output_is_our_gguf(o->out)
					  : false;
	if (ours && o->force)
		return 0;
	return ours ? err_set(e, ERR_USAGE, "%s is there already: --force replaces it", o->out)
		    : err_set(e, ERR_USAGE,
			      "%s is there already and was not written by merge: choose another "
			      "name",
			      o->out);
}

/* What the numbers of a base can be written as. */
static int check_types(const struct merger *m, bool gguf, struct err *e)
{
	if (gguf ? m->o->gguf != GGUF_OUT_AS_BASE : !m->o->as_base)
		return 0;
	for (size_t i = 0; i < model_file_count(m->file); i++) {
		const struct model_tensor *t = model_file_tensor(m->file, i);
		if (t->kind == STORE_BLOCK && (!gguf || !ggml_can_quantize(t->ggml_type)))
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%s' is %s, which is not written %s: choose another "
				       "--type",
				       m->o->model, t->name, ggml_type_name(t->ggml_type),
				       gguf ? "into a GGUF" : "into a folder");
	}
	return 0;
}

static int merge_folder(struct merger *m, struct err *e)
{
	char *tmp;
	TRY(model_folder_check(m->file, e));
	TRY(atomic_dir_begin(m->o->out, &tmp, e));
	int rc = write_folder(m, tmp, e);
	if (rc >= 0)
		rc = m->o->force ? atomic_dir_replace(m->o->out, tmp, e)
				 : atomic_dir_commit(m->o->out, tmp, e);
	if (rc < 0) {
		struct err ignored;
		dir_remove(tmp, &ignored);
	}
	mem_free(tmp);
	return rc;
}

/* As a GGUF; or as a folder, in which the pairs of experts are fused. */
static int write_adapter(struct merger *m, bool gguf, struct err *e)
{
	const struct merge_options *o = m->o;
	struct peft_adapter fused;
	const struct peft_pair *end = end_of(&m->ad);
	char *tmp;
	if (gguf && end && (m->untied || strcmp(end->module, "lm_head") != 0))
		return err_set(
			e, ERR_UNSUPPORTED,
			"an adapter on %s cannot be written alone into a GGUF: merge it into "
			"the model",
			end->module);
	if (gguf)
		return gguf_write_adapter(o->out, m->file, &m->ad, e);
	if (!m->cfg.experts)
		return err_set(e, ERR_USAGE,
			       "%s: an adapter alone is written as a GGUF: choose a name that ends "
			       "in .gguf (in a folder it is there already: %s)",
			       o->out, o->adapter);
	TRY(adapter_fuse(&m->ad, &m->cfg, &m->arena, &fused, e));
	fused.cfg.inside = model_file_inside(m->file);
	TRY(atomic_dir_begin(o->out, &tmp, e));
	int rc = peft_write(tmp, &fused, e);
	if (rc >= 0)
		rc = atomic_dir_commit(o->out, tmp, e);
	if (rc < 0) {
		struct err ignored;
		dir_remove(tmp, &ignored);
	}
	mem_free(tmp);
	return rc;
}

int merge(const struct merge_options *o, struct err *e)
{
	struct merger m = { .o = o };
	bool gguf = is_gguf_name(o->out);
	TRY(check_out(o, e));
	int rc = open_parts(&m, e);
	if (rc >= 0 && !o->adapter_only)
		rc = check_types(&m, gguf, e);
	m.all = m.file ? model_file_count(m.file) : 0;
	if (rc >= 0)
		rc = o->adapter_only ? write_adapter(&m, gguf, e)
		     : gguf          ? gguf_write_model(o->out, m.file, o->gguf, merged_rows, &m, e)
				     : merge_folder(&m, e);
	param_release(&m.quant);
	mem_free(m.part);
	dev_close(m.dev);
	model_file_close(m.file);
	arena_release(&m.arena);
	return rc;
}
