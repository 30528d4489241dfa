/* SPDX-License-Identifier: Apache-2.0 */
/* stage_param.c - see stage_param.h. */
#include "model/stage_param.h"

#include "base/err.h"
#include "base/mem.h"
#include "tensor/gathered.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct rows_of {
	struct stage_builder *b;
	const char *name;
};

static int rows_from_source(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	struct rows_of *r = ctx;
	return r->b->src->read(r->b->src->ctx, r->name, row0, rows, dst, e);
}

static int fill_plain(struct stage_builder *b, struct param *p, struct err *e)
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
static int find_cut(struct stage_builder *b, const char *name, int64_t count, bool trained,
		    const int64_t **cut_p, struct err *e)
{
	struct state_cut c = *b->s->opt.cut;
	int64_t *cut = arena_alloc(&b->s->names, ((size_t)c.n + 1) * sizeof *cut);
	if (!cut)
		return err_nomem(e, ((size_t)c.n + 1) * sizeof *cut, name);
	c.whole = c.whole && trained;
	state_cut_find(&c, &b->dealt[trained], count, cut);
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

/* Whether another member has the parameter of this name. */
static bool is_away(const struct stage *s, const char *name)
{
	const struct stage_options *o = &s->opt;
	const int at = deal_place_of(o->deal, name);
	return at == DEAL_HOME ? o->only_experts : at != o->place;
}

/* Only name and shape. */
static void declare(const struct stage *s, struct param *p, const char *name, int ndim,
		    const int64_t *dim, bool trained)
{
	*p = (struct param){ .name = name,
			     .ndim = ndim,
			     .dim = { dim[0], ndim == 2 ? dim[1] : 0 },
			     .trainable = trained,
			     .away = true,
			     .w = { .dtype = s->opt.act,
				    .rows = ndim == 2 ? dim[0] : 1,
				    .cols = ndim == 2 ? dim[1] : dim[0] } };
}

int stage_param_plain(struct stage_builder *b, struct param *p, const char *name, int ndim,
		      const int64_t *dim, bool trained, struct err *e)
{
	struct stage *s = b->s;
	const struct state_cut *c = s->opt.cut;
	if (is_away(s, name)) {
		declare(s, p, name, ndim, dim, trained);
		return 0;
	}
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

static int add_away(struct stage_builder *b, int layer, const char *name, int ndim,
		    const int64_t *dim, struct param **p_p, struct err *e)
{
	struct param *p = &b->s->param[b->s->nparam];
	const char *kept = arena_strdup(&b->s->names, name);
	if (!kept)
		return err_nomem(e, strlen(name), "a name");
	declare(b->s, p, kept, ndim, dim, is_trained(b->s, name));
	p->layer = layer;
	b->s->nparam++;
	*p_p = p;
	return 0;
}

int stage_param_add(struct stage_builder *b, int layer, const char *name, int ndim,
		    const int64_t *dim, bool linear, struct param **p_p, struct err *e)
{
	struct stage *s = b->s;
	struct source_tensor t;
	if (is_away(s, name))
		return add_away(b, layer, name, ndim, dim, p_p, e);
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
		int rc = param_init_nf4(p, s->dev, kept, dim, &q, e);
		mem_free(q.memory);
		TRY(rc);
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
			TRY(stage_param_plain(b, p, kept, ndim, dim, trained, e));
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
