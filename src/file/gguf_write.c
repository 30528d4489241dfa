/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c - see gguf_write.h. The table is laid out first; then every tensor is read in parts
 * of about 4 MiB, converted to the order and format of the file, and written. */
#include "file/gguf_write.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"
#include "file/gguf_names.h"
#include "file/model_file.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 32
#define CHUNK (1ull << 20) /* numbers */
enum { FILE_TYPE_F16 = 1, FILE_TYPE_Q8_0 = 7, QUANT_VERSION = 2 };

struct plan_tensor {
	const char *name;             /* in the file */
	const struct model_tensor *t; /* NULL: rope_freqs.weight */
	/* head_dim: rows are permuted within heads of this width, 0: they are not */
	int64_t layer, head_dim;
	int type;
	uint64_t count, bytes;
	size_t index;
};

struct writer {
	struct model_file *base;
	enum gguf_out out;
	struct gguf_shape shape;
	struct gguf_pairs pairs;
	struct arena mem;
	struct plan_tensor *t;
	size_t n;
	struct atomic_file file;
	uint64_t at; /* bytes of data written */
	struct buf rows, bytes;
	gguf_source_fn source;
	void *ctx;
};

/* ---- pairs ---- */

/* Pairs that describe the number formats of the old file. */
static bool is_stale(const char *key)
{
	static const char *const stale[] = { "general.file_type", "general.alignment",
					     "general.quantization_version" };
	for (size_t i = 0; i < ARRAY_LEN(stale); i++)
		if (!strcmp(key, stale[i]))
			return true;
	return !strncmp(key, "split.", 6) || !strncmp(key, "quantize.", 9);
}

static int copy_pairs(struct writer *w, struct err *e)
{
	struct gguf g;
	TRY(gguf_open(model_file_path(w->base), &g, e));
	for (size_t i = 0; i < g.nkv; i++) {
		if (is_stale(g.kv[i].key))
			continue;
		buf_add(&w->pairs.b, g.kv[i].raw, g.kv[i].raw_bytes);
		w->pairs.n++;
	}
	gguf_close(&g);
	return 0;
}

static int make_pairs(struct writer *w, struct err *e)
{
	bool carried = !strcmp(model_file_format(w->base), "gguf");
	TRY(gguf_meta(w->base, carried ? NULL : &w->pairs, &w->shape, e));
	if (carried) {
		TRY(copy_pairs(w, e));
	} else {
		pairs_str(&w->pairs, "general.type", "model");
		TRY(gguf_vocab(w->base, w->shape.vocab, &w->pairs, e));
	}
	pairs_u32(&w->pairs, "general.file_type",
		  w->out == GGUF_Q8_0 ? FILE_TYPE_Q8_0 : FILE_TYPE_F16);
	pairs_u32(&w->pairs, "general.quantization_version", QUANT_VERSION);
	return buf_ok(&w->pairs.b, e);
}

/* ---- the table ---- */

/* Old checkpoints also store tensors that are computed here. */
static bool is_computed(const char *name) { return strstr(name, ".rotary_emb.inv_freq") != NULL; }

static int tensor_type(const struct writer *w, const struct model_tensor *t)
{
	if (t->ndim < 2)
		return GGML_F32;
	return w->out == GGUF_Q8_0 && t->shape[t->ndim - 1] % 32 == 0 ? GGML_Q8_0 : GGML_F16;
}

static int plan_tensor(struct writer *w, const struct model_tensor *t, struct err *e)
{
	struct plan_tensor *p = &w->t[w->n];
	struct buf b = BUF_INIT;
	int64_t layer = -1;
	if (is_computed(t->name) || (w->shape.tied && !strcmp(t->name, "lm_head.weight")))
		return 0;
	if (!gguf_name_from_hf(t->name, &b, &layer) || layer >= w->shape.layers || t->ndim < 1 ||
	    t->ndim > 2 || !t->count) {
		buf_release(&b);
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the tensor '%s' has no place in a GGUF of this family",
			       model_file_path(w->base), t->name);
	}
	p->name = b.failed ? NULL : arena_strdup(&w->mem, b.p);
	buf_release(&b);
	if (!p->name)
		return err_nomem(e, 64, "a name");
	p->t = t;
	p->type = tensor_type(w, t);
	p->count = t->count;
	p->layer = layer >= 0 ? layer : !strncmp(p->name, "token", 5) ? -1 : INT32_MAX;
	if (w->shape.arch->permuted &&
	    (strstr(t->name, "self_attn.q_proj.") || strstr(t->name, "self_attn.k_proj.")))
		p->head_dim = w->shape.head_dim;
	if (p->head_dim && t->shape[0] % p->head_dim)
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' has %lld rows, which is not a multiple of the head "
			       "width %lld",
			       model_file_path(w->base), t->name, (long long)t->shape[0],
			       (long long)p->head_dim);
	w->n++;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct plan_tensor *x = a, *y = b;
	return x->layer != y->layer  ? (x->layer < y->layer ? -1 : 1)
	       : x->index < y->index ? -1
				     : x->index > y->index;
}

static int plan_tensors(struct writer *w, struct err *e)
{
	size_t n = model_file_count(w->base);
	w->t = arena_alloc(&w->mem, (n + 1) * sizeof *w->t);
	if (!w->t)
		return err_nomem(e, (n + 1) * sizeof *w->t, "a table of tensors");
	for (size_t i = 0; i < n; i++)
		TRY(plan_tensor(w, model_file_tensor(w->base, i), e));
	if (w->shape.has_factors)
		w->t[w->n++] = (struct plan_tensor){ "rope_freqs.weight",
						     NULL,
						     -1,
						     0,
						     GGML_F32,
						     (uint64_t)w->shape.head_dim / 2,
						     0,
						     0 };
	for (size_t i = 0; i < w->n; i++) {
		int block = 1, size = 4;
		const char *name;
		ggml_type_info(w->t[i].type, &block, &size, &name);
		w->t[i].bytes = w->t[i].count / (uint64_t)block * (uint64_t)size;
		w->t[i].index = i;
	}
	qsort(w->t, w->n, sizeof *w->t, by_place);
	return 0;
}

static void add_u32(struct buf *b, uint32_t v) { buf_add(b, &v, 4); }
static void add_u64(struct buf *b, uint64_t v) { buf_add(b, &v, 8); }

static int write_head(struct writer *w, struct err *e)
{
	static const char zero[ALIGN];
	struct buf b = BUF_INIT;
	uint64_t at = 0;
	buf_adds(&b, "GGUF");
	add_u32(&b, 3);
	add_u64(&b, w->n);
	add_u64(&b, w->pairs.n);
	buf_add(&b, w->pairs.b.p, w->pairs.b.n);
	for (size_t i = 0; i < w->n; i++) {
		const struct plan_tensor *p = &w->t[i];
		int ndim = p->t ? p->t->ndim : 1;
		add_u64(&b, strlen(p->name));
		buf_adds(&b, p->name);
		add_u32(&b, (uint32_t)ndim);
		for (int d = ndim; d-- > 0;) /* fastest first */
			add_u64(&b, p->t ? (uint64_t)p->t->shape[d] : p->count);
		add_u32(&b, (uint32_t)p->type);
		add_u64(&b, at);
		at += (p->bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	if (b.n % ALIGN)
		buf_add(&b, zero, ALIGN - b.n % ALIGN);
	int rc = buf_ok(&b, e);
	if (!rc)
		rc = atomic_write(&w->file, b.p, b.n, e);
	buf_release(&b);
	return rc;
}

/* ---- data ---- */

static int write_bytes(struct writer *w, const void *p, uint64_t n, struct err *e)
{
	w->at += n;
	return atomic_write(&w->file, p, n, e);
}

static int put_f16(struct writer *w, const struct plan_tensor *p, const float *x, uint64_t n,
		   struct err *e)
{
	buf_reset(&w->bytes);
	buf_reserve(&w->bytes, n * 2);
	TRY(buf_ok(&w->bytes, e));
	uint16_t *h = (uint16_t *)w->bytes.p;
	dtype_from_f32(DT_F16, x, h, n);
	for (uint64_t i = 0; i < n; i++)
		if ((h[i] & 0x7c00) == 0x7c00)
			return err_set(e, ERR_INPUT,
				       "tensor '%s': the value %g does not fit F16; write "
				       "safetensors instead",
				       p->t->name, (double)x[i]);
	return write_bytes(w, h, n * 2, e);
}

static int put_numbers(struct writer *w, const struct plan_tensor *p, const float *x, uint64_t n,
		       struct err *e)
{
	if (p->type == GGML_F32)
		return write_bytes(w, x, n * 4, e);
	if (p->type == GGML_F16)
		return put_f16(w, p, x, n, e);
	buf_reset(&w->bytes);
	buf_reserve(&w->bytes, n / 32 * 34);
	TRY(buf_ok(&w->bytes, e));
	int rc = ggml_quantize_q8_0(x, w->bytes.p, n, e);
	if (rc < 0)
		return err_prefix(e, "tensor '%s'", p->t->name);
	return write_bytes(w, w->bytes.p, n / 32 * 34, e);
}

/* Reads whole heads and writes their rows in the order of the file. */
static int write_tensor(struct writer *w, const struct plan_tensor *p, struct err *e)
{
	static const char zero[ALIGN];
	const struct model_tensor *t = p->t;
	uint64_t row = t->count / (uint64_t)t->shape[0];
	int64_t unit = p->head_dim ? p->head_dim : 1, step = (int64_t)(CHUNK / row) / unit * unit;
	if (step < unit)
		step = unit;
	for (int64_t r = 0; r < t->shape[0]; r += step) {
		int64_t n = t->shape[0] - r < step ? t->shape[0] - r : step;
		buf_reset(&w->rows);
		buf_reserve(&w->rows, (uint64_t)n * row * 4 * (p->head_dim ? 2 : 1));
		TRY(buf_ok(&w->rows, e));
		float *x = (float *)w->rows.p, *y = x;
		TRY(w->source(w->ctx, t->name, r, n, x, e));
		if (p->head_dim) {
			y = x + (uint64_t)n * row;
			for (int64_t i = 0; i < n; i++)
				memcpy(y + (uint64_t)i * row,
				       x + (uint64_t)hf_row_of_gguf(i, p->head_dim) * row, row * 4);
		}
		TRY(put_numbers(w, p, y, (uint64_t)n * row, e));
	}
	return w->at % ALIGN ? write_bytes(w, zero, ALIGN - w->at % ALIGN, e) : 0;
}

static int write_factors(struct writer *w, const struct plan_tensor *p, struct err *e)
{
	static const char zero[ALIGN];
	TRY(write_bytes(w, w->shape.factors, p->bytes, e));
	return w->at % ALIGN ? write_bytes(w, zero, ALIGN - w->at % ALIGN, e) : 0;
}

static int write_file(struct writer *w, const char *path, struct err *e)
{
	TRY(make_pairs(w, e));
	TRY(plan_tensors(w, e));
	TRY(atomic_begin(path, &w->file, e));
	int rc = write_head(w, e);
	for (size_t i = 0; i < w->n && !rc; i++)
		rc = w->t[i].t ? write_tensor(w, &w->t[i], e) : write_factors(w, &w->t[i], e);
	if (rc < 0) {
		atomic_abort(&w->file);
		return rc;
	}
	return atomic_commit(&w->file, e);
}

int gguf_write_model(const char *path, struct model_file *base, enum gguf_out type,
		     gguf_source_fn source, void *ctx, struct err *e)
{
	struct writer w = { .base = base,
			    .out = type,
			    .source = source,
			    .ctx = ctx,
			    .pairs = { BUF_INIT, 0 },
			    .rows = BUF_INIT,
			    .bytes = BUF_INIT };
	int rc = write_file(&w, path, e);
	buf_release(&w.pairs.b);
	buf_release(&w.rows);
	buf_release(&w.bytes);
	arena_release(&w.mem);
	return rc;
}
