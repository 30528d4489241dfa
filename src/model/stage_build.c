/* SPDX-License-Identifier: Apache-2.0 */
/* stage_build.c - making a stage: its parameters from a source, its adapters, its tables. */
#include "model/stage.h"

#include "base/err.h"
#include "base/mem.h"
#include "tensor/gathered.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct builder {
	struct stage *s;
	const struct weight_source *src;
	float *part; /* rows on their way */
	size_t cap;
	struct state_dealt dealt;
};

struct rows_of {
	struct builder *b;
	const char *name;
};

static int rows_from_source(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	struct rows_of *r = ctx;
	return r->b->src->read(r->b->src->ctx, r->name, row0, rows, dst, e);
}

static int fill_plain(struct builder *b, struct param *p, struct err *e)
{
	int64_t step = (1 << 20) / p->dim[1];
	step = step < 1 ? 1 : step > p->dim[0] ? p->dim[0] : step;
	if (!mem_grow(&b->part, &b->cap, (size_t)(step * p->dim[1]), sizeof *b->part))
		return err_nomem(e, (unsigned long long)(step * p->dim[1]) * 4, p->name);
	for (int64_t r = 0; r < p->dim[0]; r += step) {
		int64_t some = p->dim[0] - r < step ? p->dim[0] - r : step;
		TRY(b->src->read(b->src->ctx, p->name, r, some, b->part, e));
		TRY(param_upload_f32(p, r * p->dim[1], some * p->dim[1], b->part, e));
	}
	return 0;
}

/* Which elements each member owns; of frozen parameters every one can be cut. */
static int find_cut(struct builder *b, const char *name, int64_t count, bool trained,
		    const int64_t **cut_p, struct err *e)
{
	struct state_cut c = *b->s->opt.cut;
	int64_t *cut = arena_alloc(&b->s->names, ((size_t)c.n + 1) * sizeof *cut);
	if (!cut)
		return err_nomem(e, ((size_t)c.n + 1) * sizeof *cut, name);
	c.whole = c.whole && trained;
	state_cut_find(&c, &b->dealt, count, cut);
	*cut_p = cut;
	return 0;
}

/* Whether a matrix of the model is stored in pieces. The embedding that is also the head stays
 * whole: front and end use it, each with a gradient of its own. */
static bool is_gathered(const struct stage *s, int layer, int ndim)
{
	const struct state_cut *c = s->opt.cut;
	const bool tied = s->cfg.tied && (layer < 0 || layer == INT_MAX);
	return c && c->values && (c->n > 1 || s->opt.host_values) && ndim == 2 && !tied;
}

/* A parameter of plain numbers. */
static int init_plain(struct builder *b, struct param *p, const char *name, int ndim,
		      const int64_t *dim, bool trained, struct err *e)
{
	struct stage *s = b->s;
	const struct state_cut *c = s->opt.cut;
	if (trained && c && c->n > 1) {
		const int64_t *cut;
		TRY(find_cut(b, name, ndim == 2 ? dim[0] * dim[1] : dim[0], true, &cut, e));
		TRY(param_init_shared(p, s->dev, name, ndim, dim, s->opt.act, cut, c->n, c->place,
				      e));
	} else {
		TRY(param_init_plain(p, s->dev, name, ndim, dim, s->opt.act, trained, e));
	}
	if (!trained || ndim != 2 || !s->opt.host || !s->opt.host_state)
		return 0;
	int rc = param_to_host(p, s->opt.host, e);
	if (rc < 0)
		param_release(p);
	return rc;
}

static void shape_text(char *out, size_t n, int ndim, const int64_t *dim)
{
	if (ndim == 2)
		snprintf(out, n, "[%lld, %lld]", (long long)dim[0], (long long)dim[1]);
	else
		snprintf(out, n, "[%lld]", (long long)dim[0]);
}

/* Of a parameter of the model itself. */
static bool is_trained(const struct stage *s, const char *name)
{
	return s->opt.train_all ||
	       (s->opt.lora.save_embed && !strcmp(name, "model.embed_tokens.weight")) ||
	       (s->opt.lora.save_head && !strcmp(name, "lm_head.weight"));
}

/* Adds the parameter `name` of this shape. */
static int add_param(struct builder *b, int layer, const char *name, int ndim, const int64_t *dim,
		     bool linear, struct param **p_p, struct err *e)
{
	struct stage *s = b->s;
	struct source_tensor t;
	int found = b->src->find(b->src->ctx, name, &t, e);
	if (found < 0)
		return found;
	if (!found)
		return err_set(e, ERR_INPUT, "the model has no tensor '%s'", name);
	if (t.ndim != ndim || t.shape[0] != dim[0] || (ndim == 2 && t.shape[1] != dim[1])) {
		char is[64], must[64];
		shape_text(is, sizeof is, t.ndim, t.shape);
		shape_text(must, sizeof must, ndim, dim);
		return err_set(e, ERR_INPUT,
			       "%s has the shape %s; by the model's configuration it must be %s",
			       name, is, must);
	}
	const char *kept = arena_strdup(&s->names, name);
	if (!kept)
		return err_nomem(e, strlen(name), "a name");
	struct param *p = &s->param[s->nparam];
	const bool gathered = is_gathered(s, layer, ndim), trained = is_trained(s, name);
	const int64_t *cut = NULL;
	if (gathered)
		TRY(find_cut(b, kept, dim[0] * dim[1], trained, &cut, e));
	if (t.nf4) {
		if (trained)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s is in 4 bits and cannot be trained itself: use "
				       "'adapter: qlora'",
				       name);
		struct nf4_parts q;
		TRY(b->src->nf4(b->src->ctx, name, &q, e));
		TRY(param_init_nf4(p, s->dev, kept, dim, &q, e));
	} else if (linear && s->opt.quantize) {
		struct rows_of r = { b, name };
		TRY(param_quantize_nf4(p, s->dev, kept, dim, s->opt.double_quant, rows_from_source,
				       &r, e));
	} else {
		int rc = 0;
		if (gathered && trained)
			TRY(gathered_init(p, s->dev, kept, dim, s->opt.act, cut, s->opt.cut->n,
					  s->opt.cut->place, e));
		else
			TRY(init_plain(b, p, kept, ndim, dim, trained, e));
		if (p->gathered && (s->opt.host_values || s->opt.host_state))
			rc = param_to_host(p, s->opt.host, e);
		if (rc >= 0)
			rc = fill_plain(b, p, e);
		if (rc < 0) {
			param_release(p);
			return rc;
		}
	}
	b->src->drop(b->src->ctx, name);
	if (gathered && !p->trainable) {
		int rc = gathered_cut(p, cut, s->opt.cut->n, s->opt.cut->place, e);
		if (rc >= 0 && s->opt.host_values)
			rc = param_to_host(p, s->opt.host, e);
		if (rc < 0) {
			param_release(p);
			return rc;
		}
	}
	p->layer = layer;
	s->nparam++;
	*p_p = p;
	return 0;
}

static int add_lora(struct builder *b, int layer, enum linear l, struct lora *out, struct err *e)
{
	struct stage *s = b->s;
	const struct lora_options *o = &s->opt.lora;
	int64_t dim[2], shape[2][2];
	linear_dims(&s->cfg, l, dim);
	shape[0][0] = shape[1][1] = lora_rank(o, layer, l);
	shape[0][1] = dim[1];
	shape[1][0] = dim[0];
	struct param *p[2];
	for (int i = 0; i < 2; i++) {
		char name[128];
		snprintf(name, sizeof name, "model.layers.%d.%s.lora_%c.weight", layer,
			 linear_path(l), "AB"[i]);
		const char *kept = arena_strdup(&s->names, name);
		int64_t n = shape[i][0] * shape[i][1];
		if (!kept || !mem_grow(&b->part, &b->cap, (size_t)n, sizeof *b->part))
			return err_nomem(e, (unsigned long long)n * 4, name);
		p[i] = &s->param[s->nparam];
		TRY(init_plain(b, p[i], kept, 2, shape[i], true, e));
		s->nparam++;
		p[i]->layer = layer;
		if (i == 0)
			lora_init_a(o->seed, name, dim[1], b->part, n);
		else
			memset(b->part, 0, (size_t)n * 4);
		TRY(param_upload_f32(p[i], 0, n, b->part, e));
	}
	p[1]->rate = o->b_rate;
	*out = (struct lora){
		.a = p[0], .b = p[1], .scale = lora_factor(o, l), .dropout = o->dropout
	};
	return 0;
}

/* DoRA begins with the norms of the weight's rows. */
static int add_magnitudes(struct builder *b, int layer, enum linear l, const struct param *w,
			  struct lora *lora, struct err *e)
{
	struct stage *s = b->s;
	struct param *p = &s->param[s->nparam];
	char name[128];
	snprintf(name, sizeof name, "model.layers.%d.%s.lora_magnitude_vector", layer,
		 linear_path(l));
	const char *kept = arena_strdup(&s->names, name);
	if (!kept || !mem_grow(&b->part, &b->cap, (size_t)w->dim[0], sizeof *b->part))
		return err_nomem(e, (unsigned long long)w->dim[0] * 4, name);
	if (w->gathered)
		return err_set(e, ERR_UNSUPPORTED,
			       "peft_use_dora with 'shard: parameters' is not supported");
	TRY(init_plain(b, p, kept, 1, w->dim, true, e));
	s->nparam++;
	p->layer = layer;
	lora->m = p;
	struct dmem_mark k = dmem_mark(s->scratch);
	struct dev_ref norm;
	TRY(dmem_take(s->scratch, (size_t)w->dim[0] * 4, &norm, e));
	TRY(weight_row_norms(&w->w, NULL, NULL, 0, s->scratch, s->opt.act, norm, e));
	TRY(dev_download(b->part, norm, (size_t)w->dim[0] * 4, e));
	dmem_back(s->scratch, k);
	return param_upload_f32(p, 0, w->dim[0], b->part, e);
}

static int add_norm(struct builder *b, int64_t index, enum layer_norm n, struct layer *l,
		    struct err *e)
{
	const struct model_config *c = &b->s->cfg;
	const char *which = layer_norm_name(c, n);
	char name[128];
	if (!which)
		return 0;
	snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)index, which);
	return add_param(b, (int)index, name, 1, &c->hidden, false, &l->norm[n], e);
}

static int add_layer(struct builder *b, int64_t index, struct layer *l, struct err *e)
{
	struct stage *s = b->s;
	const struct model_config *c = &s->cfg;
	char name[128];
	int at = snprintf(name, sizeof name, "model.layers.%lld.", (long long)index);
	char *rest = name + at;
	size_t room = sizeof name - (size_t)at;
	static const enum linear order[] = { LIN_QKV,     LIN_Q,    LIN_K,  LIN_V,   LIN_O,
					     LIN_GATE_UP, LIN_GATE, LIN_UP, LIN_DOWN };
	TRY(add_norm(b, index, NORM_ATTN_IN, l, e));
	for (size_t k = 0; k < ARRAY_LEN(order); k++) {
		const enum linear i = order[k];
		int64_t dim[2];
		linear_dims(c, i, dim);
		if (i == LIN_GATE_UP) {
			TRY(add_norm(b, index, NORM_ATTN_OUT, l, e));
			TRY(add_norm(b, index, NORM_MLP_IN, l, e));
		}
		if (!model_has_linear(c, i))
			continue;
		snprintf(rest, room, "%s.weight", linear_path(i));
		TRY(add_param(b, (int)index, name, 2, dim, true, &l->lin[i].w, e));
		if (linear_has_bias(c, i)) {
			snprintf(rest, room, "%s.bias", linear_path(i));
			TRY(add_param(b, (int)index, name, 1, dim, false, &l->lin[i].bias, e));
		}
		if (c->qk_norm && i <= LIN_K) {
			snprintf(rest, room, "self_attn.%c_norm.weight", "qk"[i]);
			const int64_t width = qk_norm_width(c, i);
			TRY(add_param(b, (int)index, name, 1, &width, false,
				      i == LIN_Q ? &l->qnorm : &l->knorm, e));
		}
		if (!lora_rank(&s->opt.lora, index, i))
			continue;
		TRY(add_lora(b, (int)index, i, &l->lin[i].lora, e));
		if (s->opt.lora.dora)
			TRY(add_magnitudes(b, (int)index, i, l->lin[i].w, &l->lin[i].lora, e));
	}
	return add_norm(b, index, NORM_MLP_OUT, l, e);
}

/* The head (V,C). */
static int add_head(struct builder *b, struct err *e)
{
	struct stage *s = b->s;
	const struct model_config *c = &s->cfg;
	const int64_t table[2] = { c->vocab, c->hidden };
	if (!c->tied)
		return add_param(b, INT_MAX, "lm_head.weight", 2, table, false, &s->head, e);
	struct param *embed = s->front ? s->embed : s->opt.embed;
	if (embed && !embed->trainable) {
		s->head = embed;
		return 0;
	}
	if (!embed) {
		TRY(add_param(b, INT_MAX, "model.embed_tokens.weight", 2, table, false, &s->head,
			      e));
		if (s->head->trainable)
			param_to_replica(s->head);
		return 0;
	}
	s->head = &s->param[s->nparam];
	TRY(param_init_replica(s->head, embed, e));
	s->head->layer = INT_MAX;
	s->nparam++;
	return 0;
}

static int add_all(struct builder *b, struct err *e)
{
	struct stage *s = b->s;
	const struct model_config *c = &s->cfg;
	const int64_t table[2] = { c->vocab, c->hidden };
	if (s->front)
		TRY(add_param(b, -1, "model.embed_tokens.weight", 2, table, false, &s->embed, e));
	for (int64_t i = s->opt.first; i < s->opt.last; i++)
		TRY(add_layer(b, i, &s->layer[i - s->opt.first], e));
	if (!s->end)
		return 0;
	TRY(add_param(b, INT_MAX, "model.norm.weight", 1, &c->hidden, false, &s->norm, e));
	return add_head(b, e);
}

static void mark_needs(struct stage *s)
{
	bool need = !s->front || s->embed->trainable;
	int64_t n = s->opt.last - s->opt.first;
	for (int64_t i = 0; i <= n; i++) {
		s->needs[i] = need;
		for (size_t k = 0; k < s->nparam && i < n; k++)
			need |= s->param[k].trainable && s->param[k].layer == s->opt.first + i;
	}
}

int stage_build(struct stage *s, struct dev *dev, const struct model_config *cfg,
		const struct stage_options *o, const struct weight_source *src, struct err *e)
{
	if (o->first < 0 || o->first >= o->last || o->last > cfg->layers)
		return err_set(e, ERR_INTERNAL, "a stage of layers [%lld, %lld) of %lld",
			       (long long)o->first, (long long)o->last, (long long)cfg->layers);
	*s = (struct stage){ .dev = dev,
			     .cfg = *cfg,
			     .opt = *o,
			     .front = o->first == 0,
			     .end = o->last == cfg->layers };
	struct builder b = { .s = s, .src = src };
	size_t n = (size_t)(o->last - o->first), per_layer = NORM_COUNT + 2 + LIN_COUNT * 5;
	int rc = 0;
	dmem_init(&s->own_scratch, dev, 4 << 20);
	s->scratch = o->scratch ? o->scratch : &s->own_scratch;
	s->param = mem_array(n * per_layer + 3, sizeof *s->param);
	s->layer = mem_array(n, sizeof *s->layer);
	s->needs = mem_array(n + 1, sizeof *s->needs);
	if (!s->param || !s->layer || !s->needs) {
		rc = err_nomem(e, n * per_layer * sizeof *s->param, "a stage");
		goto out;
	}
	TRYOUT(dev_alloc(dev, sizeof cfg->inv_freq, &s->inv_freq, e));
	TRYOUT(dev_upload(DEV_REF(s->inv_freq, 0), cfg->inv_freq, sizeof cfg->inv_freq, e));
	TRYOUT(add_all(&b, e));
	mark_needs(s);
	for (size_t i = 0; i < s->nparam; i++)
		TRYOUT(param_refresh(&s->param[i], e));
out:
	mem_free(b.part);
	if (rc < 0)
		stage_release(s);
	return rc;
}

int stage_tie(struct stage *front, struct stage *end, struct err *e)
{
	struct param *p = front->embed, *r = end->head;
	if (!p || !r || !r->replica)
		return 0;
	int64_t first, count = param_owned(p, &first);
	TRY(param_add_grad(p, first, count, DEV_REF(r->grad, (size_t)first * 4), e));
	return dev_zero(DEV_REF(r->grad, 0), (size_t)param_count(r) * 4, e);
}

int stage_tie_value(const struct stage *front, struct stage *end, struct err *e)
{
	const struct param *p = front->embed;
	struct param *r = end->head;
	if (!p || !r || !r->replica || r->w.data.buf == p->w.data.buf)
		return 0;
	return dev_copy(r->w.data, p->w.data, (size_t)param_count(p) * dtype_size(p->w.dtype), e);
}

void stage_release(struct stage *s)
{
	for (size_t i = 0; i < s->nparam; i++)
		param_release(&s->param[i]);
	dev_free(s->inv_freq);
	if (s->dev)
		dmem_release(&s->own_scratch);
	mem_free(s->param);
	mem_free(s->layer);
	mem_free(s->needs);
	arena_release(&s->names);
	*s = (struct stage){ 0 };
}

int stage_part(const struct stage *s, int64_t first, int64_t last, bool front, bool end,
	       struct stage *part, struct err *e)
{
	*part = *s;
	part->opt.first = first;
	part->opt.last = last;
	part->front = front;
	part->end = end;
	part->layer = s->layer + (first - s->opt.first);
	part->names = (struct arena)ARENA_INIT;
	dmem_init(&part->own_scratch, s->dev, 4 << 20);
	part->scratch = &part->own_scratch;
	part->needs = mem_array((size_t)(last - first) + 1, sizeof *part->needs);
	if (!part->needs)
		return err_nomem(e, (size_t)(last - first) + 1, "a part of a stage");
	mark_needs(part);
	return 0;
}

void stage_part_release(struct stage *part)
{
	if (part->dev)
		dmem_release(&part->own_scratch);
	mem_free(part->needs);
	*part = (struct stage){ 0 };
}

struct param *stage_param(const struct stage *s, const char *name)
{
	for (size_t i = 0; i < s->nparam; i++)
		if (!strcmp(s->param[i].name, name))
			return &s->param[i];
	return NULL;
}
