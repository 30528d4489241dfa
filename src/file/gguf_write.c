/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c - see gguf_write.h. The table is laid out first; then every tensor is read in parts
 * of about 4 MiB, converted to the order and format of the file, and written. */
#include "file/gguf_write.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/version.h"
#include "file/atomic.h"
#include "file/ggml_blocks.h"
#include "file/gguf.h"
#include "file/gguf_kv.h"
#include "file/gguf_names.h"
#include "file/model_file.h"
#include "file/peft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 32
#define CHUNK (1ull << 20) /* numbers */
enum { QUANT_VERSION = 2 };

struct plan_tensor {
	const char *name;             /* in the file */
	const struct model_tensor *t; /* NULL: `factors` */
	const float *factors;
	int64_t layer;
	struct gguf_layout layout;
	int64_t experts;     /* t and those of the other experts, one after the other; 0: t alone */
	const char *starred; /* their name in Hugging Face with a star for the number */
	const char *up;      /* of the tensor that follows it in each expert; NULL: none does */
	bool vector;         /* the only row of a matrix */
	int64_t split;       /* a vector, as rows of so many numbers; 0: as it is */
	int64_t first, rows; /* of t: its rows from `first` on */
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
					     "general.quantization_version", GGUF_MARK };
	for (size_t i = 0; i < ARRAY_LEN(stale); i++)
		if (!strcmp(key, stale[i]))
			return true;
	return !strncmp(key, "split.", 6) || !strncmp(key, "quantize.", 9);
}

static int copy_pairs(struct writer *w, struct err *e)
{
	struct gguf g;
	char blocks[64], extra[64];
	TRY(gguf_open(model_file_path(w->base), &g, e));
	/* layers that predict further tokens are not read, so they are not written */
	snprintf(blocks, sizeof blocks, "%s.block_count", w->shape.arch->name);
	snprintf(extra, sizeof extra, "%s.nextn_predict_layers", w->shape.arch->name);
	for (size_t i = 0; i < g.nkv; i++) {
		if (!strcmp(g.kv[i].key, blocks)) {
			pairs_u32(&w->pairs, blocks, (uint32_t)w->shape.layers);
			continue;
		}
		if (!strcmp(g.kv[i].key, extra) ||
		    (is_stale(g.kv[i].key) &&
		     !(w->out == GGUF_OUT_AS_BASE && !strcmp(g.kv[i].key, "general.file_type"))))
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
	if (gguf_file_type(w->out) >= 0)
		pairs_u32(&w->pairs, "general.file_type", (uint32_t)gguf_file_type(w->out));
	else if (!carried)
		pairs_u32(&w->pairs, "general.file_type", (uint32_t)gguf_file_type(GGUF_OUT_F16));
	pairs_str(&w->pairs, GGUF_MARK, HS_VERSION);
	pairs_u32(&w->pairs, "general.quantization_version", QUANT_VERSION);
	return buf_ok(&w->pairs.b, e);
}

/* ---- the table ---- */

/* Old checkpoints also store tensors that are computed here. */
static bool is_computed(const char *name) { return strstr(name, ".rotary_emb.inv_freq") != NULL; }

static int base_type(const struct model_tensor *t)
{
	return t->kind == STORE_BLOCK       ? t->ggml_type
	       : t->ggml_type == GGML_MXFP4 ? GGML_MXFP4
	       : t->kind == STORE_NF4       ? GGML_F16
	       : t->dtype == DT_F32         ? GGML_F32
	       : t->dtype == DT_BF16        ? GGML_BF16
					    : GGML_F16;
}

static int tensor_type(const struct writer *w, const struct plan_tensor *p)
{
	const struct model_tensor *t = p->t;
	if (t->ndim < 2 || strstr(p->name, ".ffn_gate_inp"))
		return GGML_F32;
	return gguf_matrix_type(w->out, &(struct gguf_place){ .name = p->name,
							      .layer = p->layer,
							      .layers = w->shape.layers,
							      .columns = t->shape[t->ndim - 1],
							      .tied = w->shape.tied,
							      .base = base_type(t) });
}

/* Every expert has this tensor, in the shape of t. */
static int check_experts(struct writer *w, const struct model_tensor *t, const char *starred,
			 struct err *e)
{
	struct buf b = BUF_INIT;
	int rc = 0;
	for (int64_t x = 0; !rc && x < w->shape.experts; x++) {
		const struct model_tensor *o;
		buf_reset(&b);
		gguf_expert_name(starred, x, &b);
		o = b.failed ? NULL : model_file_find(w->base, b.p);
		if (!o || o->ndim != t->ndim || o->shape[0] != t->shape[0] ||
		    (o->ndim == 2 && o->shape[1] != t->shape[1]))
			rc = err_set(
				e, ERR_INPUT,
				"%s: the tensor '%s' is missing or has another shape than that "
				"of expert 0",
				model_file_path(w->base), b.failed ? "" : b.p);
	}
	buf_release(&b);
	return rc;
}

/* All experts of a layer are one tensor, which is planned where the first one is. 1: t is the
 * second half of each expert, which is planned with the first half. */
static int plan_experts(struct writer *w, struct plan_tensor *p, struct err *e)
{
	struct buf b = BUF_INIT, up = BUF_INIT, first = BUF_INIT;
	int64_t layer;
	p->experts = w->shape.experts;
	gguf_name_to_hf(w->shape.arch, p->name, &b, &layer);
	p->starred = b.failed ? NULL : arena_strdup(&w->mem, b.p);
	if (gguf_name_up_to_hf(w->shape.arch, p->name, &up)) {
		p->up = up.failed ? NULL : arena_strdup(&w->mem, up.p);
		gguf_expert_name(up.failed ? "*" : up.p, 0, &first);
	}
	int rc = !p->starred || up.failed || first.failed || (up.n && !p->up)
			 ? err_nomem(e, 128, "a name")
		 : up.n && !strcmp(first.p, p->t->name) ? 1
							: check_experts(w, p->t, p->starred, e);
	if (!rc && p->up)
		rc = check_experts(w, p->t, p->up, e);
	buf_release(&b);
	buf_release(&up);
	buf_release(&first);
	return rc;
}

/* Gate and up as one matrix: its first half is planned, the second half gets a tensor too. */
static int plan_halves(struct writer *w, struct plan_tensor *p, struct err *e)
{
	struct buf b = BUF_INIT;
	if (!gguf_name_of_up(w->shape.arch, p->t->name, &b))
		return 0;
	struct plan_tensor *up = &w->t[w->n++];
	p->rows /= 2;
	p->count /= 2;
	*up = *p;
	up->first = p->rows;
	up->name = b.failed ? NULL : arena_strdup(&w->mem, b.p);
	buf_release(&b);
	return up->name ? 0 : err_nomem(e, 64, "a name");
}

static int plan_tensor(struct writer *w, const struct model_tensor *t, struct err *e)
{
	struct plan_tensor *p = &w->t[w->n];
	struct buf b = BUF_INIT;
	int64_t layer = -1, expert = -1;
	long long at = -1;
	*p = (struct plan_tensor){ .t = t };
	if (sscanf(t->name, "model.layers.%lld.", &at) == 1 && at >= w->shape.layers &&
	    at - w->shape.layers < w->shape.extra)
		return 0;
	if (is_computed(t->name) || (w->shape.tied && !strcmp(t->name, "lm_head.weight")))
		return 0;
	if (!gguf_name_from_hf(w->shape.arch, t->name, &b, &layer, &expert) ||
	    layer >= w->shape.layers || expert >= w->shape.experts || t->ndim < 1 || t->ndim > 2 ||
	    !t->count) {
		buf_release(&b);
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: the tensor '%s' has no place in a GGUF of this family",
			       model_file_path(w->base), t->name);
	}
	if (expert > 0) {
		buf_release(&b);
		return 0;
	}
	p->name = b.failed ? NULL : arena_strdup(&w->mem, b.p);
	buf_release(&b);
	if (!p->name)
		return err_nomem(e, 64, "a name");
	p->rows = t->shape[0];
	const int second = expert ? 0 : plan_experts(w, p, e);
	if (second)
		return second < 0 ? second : 0;
	p->count = t->count * (uint64_t)(p->experts ? p->experts : 1) * (p->up ? 2 : 1);
	p->layer = layer;
	p->type = tensor_type(w, p);
	p->layer = layer >= 0 ? layer : !strncmp(p->name, "token", 5) ? -1 : INT32_MAX;
	TRY(gguf_layout_of(w->shape.arch, &w->shape.head, t->name, t->shape[0],
			   t->ndim > 1 ? t->shape[1] : 1, model_file_path(w->base), &p->layout, e));
	p->vector = strstr(p->name, ".ffn_gate_inp_shexp.") != NULL;
	p->split = strstr(p->name, ".ssm_conv1d.") || strstr(p->name, ".shortconv.conv.")
			   ? w->shape.head.conv
			   : 0;
	w->n++;
	return w->shape.arch->one_up ? plan_halves(w, p, e) : 0;
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
	const size_t most = (w->shape.arch->one_up ? 2 * n : n) + 2;
	w->t = arena_alloc(&w->mem, most * sizeof *w->t);
	if (!w->t)
		return err_nomem(e, most * sizeof *w->t, "a table of tensors");
	for (size_t i = 0; i < n; i++)
		TRY(plan_tensor(w, model_file_tensor(w->base, i), e));
	for (int i = 0; i < w->shape.nfactors; i++)
		w->t[w->n++] = (struct plan_tensor){ .name = w->shape.factors[i].name,
						     .factors = w->shape.factors[i].v,
						     .layer = -1,
						     .type = GGML_F32,
						     .count = (uint64_t)w->shape.rot / 2 };
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

/* Of the tensor in the file, fastest first; returns how many. */
static uint32_t dimensions(const struct plan_tensor *p, uint64_t dim[3])
{
	uint32_t n = 0;
	if (p->split) {
		dim[n++] = (uint64_t)p->split;
		dim[n++] = p->count / (uint64_t)p->split;
	} else if (!p->t || p->vector) {
		dim[n++] = p->count;
	} else {
		for (int d = p->t->ndim; d-- > 0;)
			dim[n++] = (uint64_t)(d ? p->t->shape[d] : p->rows * (p->up ? 2 : 1));
	}
	if (p->experts)
		dim[n++] = (uint64_t)p->experts;
	return n;
}

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
		uint64_t dim[3];
		const uint32_t ndim = dimensions(p, dim);
		add_u64(&b, strlen(p->name));
		buf_adds(&b, p->name);
		add_u32(&b, ndim);
		for (uint32_t d = 0; d < ndim; d++)
			add_u64(&b, dim[d]);
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
	int block, bytes, rc = 0;
	const char *name;
	if (!ggml_type_info(p->type, &block, &bytes, &name))
		return err_set(e, ERR_UNSUPPORTED,
			       "tensor '%s': numbers of type %s are not written", p->t->name,
			       ggml_type_name(p->type));
	uint64_t size = n / (uint64_t)block * (uint64_t)bytes;
	buf_reset(&w->bytes);
	buf_reserve(&w->bytes, size);
	TRY(buf_ok(&w->bytes, e));
	if (p->type == GGML_BF16)
		dtype_from_f32(DT_BF16, x, w->bytes.p, n);
	else
		rc = ggml_quantize(p->type, x, w->bytes.p, n, e);
	if (rc < 0)
		return err_prefix(e, "tensor '%s'", p->t->name);
	return write_bytes(w, w->bytes.p, size, e);
}

static int64_t row_of(const struct plan_tensor *p)
{
	return (int64_t)(p->t->count / (uint64_t)p->t->shape[0]);
}

/* Rows that are read at once and written in the order of the file: whole heads where rows are
 * interleaved, at most one block where blocks are dealt out. */
static int64_t rows_at_once(const struct plan_tensor *p, int64_t from)
{
	const struct gguf_layout *l = &p->layout;
	const int64_t rows = p->rows, row = row_of(p), unit = l->rotary ? l->rotary : 1;
	int64_t n = (int64_t)CHUNK / row / unit * unit;
	n = n < unit ? unit : n;
	const int64_t run = l->rotary ? rows - from : gguf_layout_run(l, from, rows);
	return n < run ? n : run;
}

/* Reads rows and writes them in the order of the file. `name`: of p->t, or of the same one of
 * another expert. */
static int write_rows(struct writer *w, const struct plan_tensor *p, const char *name,
		      struct err *e)
{
	const struct gguf_layout *l = &p->layout;
	const int64_t rows = p->rows, row = row_of(p);
	for (int64_t r = 0, n; r < rows; r += n) {
		n = rows_at_once(p, r);
		const uint64_t count = (uint64_t)(n * row);
		buf_reset(&w->rows);
		buf_reserve(&w->rows, count * 4 * (gguf_layout_moves(l) ? 2 : 1));
		TRY(buf_ok(&w->rows, e));
		float *x = (float *)w->rows.p, *y = x + count;
		TRY(w->source(w->ctx, name, p->first + (l->rotary ? r : hf_row_of_gguf(l, r)), n, x,
			      e));
		gguf_numbers_of_hf(l, x, count);
		for (int64_t i = 0; l->rotary && i < n; i++)
			memcpy(y + i * row, x + hf_row_of_gguf(l, i) * row, (size_t)row * 4);
		if (l->columns.per)
			gguf_columns_of_hf(l, x, y, n, row);
		TRY(put_numbers(w, p, l->rotary || l->columns.per ? y : x, count, e));
	}
	return 0;
}

static int write_tensor(struct writer *w, const struct plan_tensor *p, struct err *e)
{
	static const char zero[ALIGN];
	struct buf name = BUF_INIT;
	int rc = p->experts ? 0 : write_rows(w, p, p->t->name, e);
	const int halves = p->up ? 2 : 1;
	for (int64_t x = 0; x < p->experts * halves && !rc; x++) {
		buf_reset(&name);
		gguf_expert_name(x % halves ? p->up : p->starred, x / halves, &name);
		rc = buf_ok(&name, e);
		if (!rc)
			rc = write_rows(w, p, name.p, e);
	}
	buf_release(&name);
	TRY(rc);
	return w->at % ALIGN ? write_bytes(w, zero, ALIGN - w->at % ALIGN, e) : 0;
}

static int write_factors(struct writer *w, const struct plan_tensor *p, struct err *e)
{
	static const char zero[ALIGN];
	TRY(write_bytes(w, p->factors, p->bytes, e));
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

/* ---- adapters ---- */

/* One half of a pair: rows of `columns` numbers, in the order of the file: of A its columns, of B
 * its rows. Those of all experts of a layer are one: v (experts), NULL where an expert has no
 * adapter. */
struct half {
	char name[96];
	const float **v;
	int64_t rows, columns, experts;
	struct gguf_layout layout;
};

/* One alpha stands for all modules, a reader divides it by each rank. */
static int check_adapter(const struct peft_adapter *ad, struct err *e)
{
	if (ad->cfg.dora || ad->nsaved)
		return err_set(e, ERR_UNSUPPORTED,
			       "an adapter with %s cannot be written alone into a GGUF: merge it "
			       "into the model",
			       ad->cfg.dora ? "magnitudes (DoRA)"
					    : "modules that were saved whole");
	for (size_t i = 1; i < ad->npair; i++)
		if ((float)(ad->pair[i].scale * ad->pair[i].r) !=
		    (float)(ad->pair[0].scale * ad->pair[0].r))
			return err_set(
				e, ERR_UNSUPPORTED,
				"an adapter whose alpha differs from module to module cannot "
				"be written alone into a GGUF: merge it into the model");
	return 0;
}

/* Half number i of *n_p with this name, or a new one behind them; NULL: no memory, or one of
 * another shape has the name. */
static struct half *half_of(struct writer *w, struct half *half, size_t *n_p, const char *name,
			    char which, int64_t rows, int64_t columns, bool expert)
{
	struct half h = { .rows = rows,
			  .columns = columns,
			  .experts = expert ? w->shape.experts : 0 };
	snprintf(h.name, sizeof h.name, "%.64s.lora_%c", name, which);
	for (size_t i = *n_p; expert && i-- > 0;)
		if (!strcmp(half[i].name, h.name))
			return half[i].rows == rows && half[i].columns == columns ? &half[i] : NULL;
	h.v = arena_alloc(&w->mem, (size_t)(expert ? h.experts : 1) * sizeof *h.v);
	if (!h.v)
		return NULL;
	half[*n_p] = h;
	return &half[(*n_p)++];
}

/* The halves of one pair, whose module is called `name` in the file, for `rows` rows from `first`
 * on of what it makes. */
static int add_halves(struct writer *w, const struct peft_pair *p, const char *name, int64_t x,
		      int64_t first, int64_t rows, struct half *half, size_t *n_p, struct err *e)
{
	struct gguf_layout l;
	TRY(gguf_layout_of(w->shape.arch, &w->shape.head, p->module, p->out, p->in,
			   model_file_path(w->base), &l, e));
	struct half *a = half_of(w, half, n_p, name, 'a', p->r, p->in, x >= 0);
	struct half *b = half_of(w, half, n_p, name, 'b', rows, p->r, x >= 0);
	if (!a || !b)
		return err_set(e, ERR_INPUT, "the adapter's '%s' has another shape than before",
			       p->module);
	a->v[x < 0 ? 0 : x] = p->a;
	b->v[x < 0 ? 0 : x] = p->b + first * p->r;
	a->layout = (struct gguf_layout){ .columns = l.columns };
	b->layout = (struct gguf_layout){ .rotary = l.rotary, .rows = l.rows };
	return 0;
}

/* The same where gate and up of each expert are one module in the file: A has the rows of gate's
 * and then those of up's, B their numbers in two blocks. A reader divides alpha by all rows of A,
 * so numbers of B are twice as large. */
static int add_both(struct writer *w, const struct peft_pair *p, const char *name, int64_t x,
		    bool up, struct half *half, size_t *n_p, struct err *e)
{
	const int64_t r = 2 * p->r;
	struct half *a = half_of(w, half, n_p, name, 'a', r, p->in, true);
	struct half *b = half_of(w, half, n_p, name, 'b', 2 * p->out, r, true);
	if (!a || !b)
		return err_set(e, ERR_INPUT,
			       "the adapter's '%s' has another shape than before, which a GGUF of "
			       "this family has no place for: merge it into the model",
			       p->module);
	if (!a->v[x]) {
		a->v[x] = arena_alloc(&w->mem, (size_t)(r * p->in) * sizeof(float));
		b->v[x] = arena_alloc(&w->mem, (size_t)(2 * p->out * r) * sizeof(float));
	}
	if (!a->v[x] || !b->v[x])
		return err_nomem(e, (uint64_t)(r * (p->in + 2 * p->out)) * 4, "an adapter");
	float *to = (float *)b->v[x] + (up ? p->out * r + p->r : 0);
	memcpy((float *)a->v[x] + (up ? p->r * p->in : 0), p->a, (size_t)(p->r * p->in) * 4);
	for (int64_t i = 0; i < p->out * p->r; i++)
		to[i / p->r * r + i % p->r] = 2 * p->b[i];
	return 0;
}

/* Gemma 4 multiplies what an expert makes by a number of its own. llama.cpp does so before it adds
 * what the adapter makes (build_lora_mm_id, 2026), so B is multiplied here. */
static int scale_down(struct writer *w, struct peft_pair *p, int64_t layer, int64_t x,
		      struct err *e)
{
	char name[96];
	snprintf(name, sizeof name, "model.layers.%lld.router.per_expert_scale", (long long)layer);
	const struct model_tensor *t = model_file_find(w->base, name);
	const int64_t n = p->out * p->r;
	float scale, *to = arena_alloc(&w->mem, (size_t)n * sizeof *to);
	if (!t || t->ndim != 1 || x >= t->shape[0])
		return err_set(e, ERR_INPUT, "%s: the tensor '%s' is missing or has another shape",
			       model_file_path(w->base), name);
	if (!to)
		return err_nomem(e, (uint64_t)n * 4, "an adapter");
	TRY(model_file_read_f32(w->base, t, x, 1, &scale, e));
	for (int64_t i = 0; i < n; i++)
		to[i] = scale * p->b[i];
	p->b = to;
	return 0;
}

/* `full`: the name of its weight in Hugging Face. */
static int add_pair(struct writer *w, const struct peft_pair *p, const char *full, const char *name,
		    int64_t layer, int64_t x, struct half *half, size_t *n_p, struct err *e)
{
	struct buf up = BUF_INIT;
	if (gguf_name_up_to_hf(w->shape.arch, name, &up)) {
		buf_release(&up);
		return add_both(w, p, name, x, strstr(full, ".up_proj.") != NULL, half, n_p, e);
	}
	if (w->shape.arch->experts == GGUF_EXPERTS_SIDE && x >= 0) {
		struct peft_pair scaled = *p;
		TRY(scale_down(w, &scaled, layer, x, e));
		return add_halves(w, &scaled, name, x, 0, p->out, half, n_p, e);
	}
	if (!w->shape.arch->one_up || !gguf_name_of_up(w->shape.arch, full, &up))
		return add_halves(w, p, name, x, 0, p->out, half, n_p, e);
	const int64_t rows = p->out / 2;
	int rc = up.failed ? err_nomem(e, 64, "a name")
			   : add_halves(w, p, name, x, 0, rows, half, n_p, e);
	if (rc >= 0)
		rc = add_halves(w, p, up.p, x, rows, rows, half, n_p, e);
	buf_release(&up);
	return rc;
}

static int list_halves(struct writer *w, const struct peft_adapter *ad, struct half *half,
		       size_t *n_p, struct err *e)
{
	for (size_t i = 0; i < ad->npair; i++) {
		const struct peft_pair *p = &ad->pair[i];
		struct buf name = BUF_INIT, full = BUF_INIT;
		int64_t layer = -1, x = -1;
		int rc;
		buf_addf(&full, "%s.weight", p->module);
		if (!full.failed && gguf_name_from_hf(w->shape.arch, full.p, &name, &layer, &x) &&
		    !name.failed && layer < w->shape.layers && x < w->shape.experts && name.n < 64)
			rc = add_pair(w, p, full.p, name.p, layer, x, half, n_p, e);
		else
			rc = err_set(e, ERR_UNSUPPORTED,
				     "the adapter's '%s' has no place in a GGUF of this family",
				     p->module);
		buf_release(&name);
		buf_release(&full);
		TRY(rc);
	}
	return 0;
}

static int write_halves(struct writer *w, const struct half *half, size_t n, struct err *e)
{
	static const char zero[ALIGN];
	for (size_t i = 0; i < n; i++) {
		const struct half *h = &half[i];
		const uint64_t row = (uint64_t)h->columns * 4;
		const int64_t parts = h->experts ? h->experts : 1;
		buf_reset(&w->rows);
		buf_reserve(&w->rows, row);
		TRY(buf_ok(&w->rows, e));
		float *x = (float *)w->rows.p;
		for (int64_t k = 0; k < parts * h->rows; k++) {
			const int64_t from = hf_row_of_gguf(&h->layout, k % h->rows);
			const float *v = h->v[k / h->rows];
			memset(x, 0, row);
			if (v && h->layout.columns.per)
				gguf_columns_of_hf(&h->layout, v + from * h->columns, x, 1,
						   h->columns);
			else if (v)
				memcpy(x, v + from * h->columns, row);
			TRY(write_bytes(w, x, row, e));
		}
		if (w->at % ALIGN)
			TRY(write_bytes(w, zero, ALIGN - w->at % ALIGN, e));
	}
	return 0;
}

static int adapter_head(struct writer *w, const struct half *half, size_t n,
			const struct peft_adapter *ad, struct buf *b, struct err *e)
{
	static const char zero[ALIGN];
	uint64_t at = 0;
	pairs_str(&w->pairs, "general.architecture", w->shape.arch->name);
	pairs_str(&w->pairs, "general.type", "adapter");
	pairs_str(&w->pairs, "adapter.type", "lora");
	/* a reader divides it by r */
	pairs_f32(&w->pairs, "adapter.lora.alpha", (float)(ad->pair[0].scale * ad->pair[0].r));
	pairs_u32(&w->pairs, "general.file_type", (uint32_t)gguf_file_type(GGUF_OUT_F32));
	pairs_str(&w->pairs, GGUF_MARK, HS_VERSION);
	TRY(buf_ok(&w->pairs.b, e));
	buf_adds(b, "GGUF");
	add_u32(b, 3);
	add_u64(b, n);
	add_u64(b, w->pairs.n);
	buf_add(b, w->pairs.b.p, w->pairs.b.n);
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes = (uint64_t)half[i].rows * (uint64_t)half[i].columns * 4;
		if (half[i].experts)
			bytes *= (uint64_t)half[i].experts;
		add_u64(b, strlen(half[i].name));
		buf_adds(b, half[i].name);
		add_u32(b, half[i].experts ? 3 : 2);
		add_u64(b, (uint64_t)half[i].columns);
		add_u64(b, (uint64_t)half[i].rows);
		if (half[i].experts)
			add_u64(b, (uint64_t)half[i].experts);
		add_u32(b, GGML_F32);
		add_u64(b, at);
		at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	}
	if (b->n % ALIGN)
		buf_add(b, zero, ALIGN - b->n % ALIGN);
	return buf_ok(b, e);
}

int gguf_write_adapter(const char *path, struct model_file *base, const struct peft_adapter *ad,
		       struct err *e)
{
	struct writer w = { .base = base, .pairs = { BUF_INIT, 0 } };
	struct buf head = BUF_INIT;
	size_t n = 0;
	struct half *half = mem_array(4 * ad->npair + 1, sizeof *half);
	int rc = half ? check_adapter(ad, e)
		      : err_nomem(e, ad->npair * sizeof *half, "the adapter's tensors");
	if (rc >= 0)
		rc = gguf_meta(base, NULL, &w.shape, e);
	if (rc >= 0)
		rc = list_halves(&w, ad, half, &n, e);
	if (rc >= 0)
		rc = adapter_head(&w, half, n, ad, &head, e);
	if (rc >= 0)
		rc = atomic_begin(path, &w.file, e);
	if (rc >= 0) {
		rc = atomic_write(&w.file, head.p, head.n, e);
		if (rc >= 0)
			rc = write_halves(&w, half, n, e);
		if (rc < 0)
			atomic_abort(&w.file);
		else
			rc = atomic_commit(&w.file, e);
	}
	mem_free(half);
	buf_release(&head);
	buf_release(&w.rows);
	buf_release(&w.pairs.b);
	arena_release(&w.mem);
	return rc;
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
