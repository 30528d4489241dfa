/* SPDX-License-Identifier: Apache-2.0 */
/* stage_build.c - making a stage: the parameters of its blocks, its tables. */
#include "model/model_block.h"
#include "model/stage_param.h"

#include "base/err.h"
#include "base/mem.h"

#include <limits.h>
#include <string.h>

static int add_all(struct stage_builder *b, struct err *e)
{
	struct stage *s = b->s;
	if (s->front)
		TRY(s->blocks->front.build(b, -1, e));
	for (int64_t i = s->opt.first; i < s->opt.last; i++)
		TRY(s->blocks->layer.build(b, i, e));
	return s->end && !s->opt.only_experts ? s->blocks->end.build(b, INT_MAX, e) : 0;
}

static void mark_needs(struct stage *s)
{
	bool need = !s->front;
	int64_t n = s->opt.last - s->opt.first;
	for (size_t k = 0; k < s->nparam; k++)
		need |= s->param[k].trainable && s->param[k].layer < 0;
	for (int64_t i = 0; i <= n; i++) {
		s->needs[i] = need;
		for (size_t k = 0; k < s->nparam && i < n; k++)
			need |= s->param[k].trainable && s->param[k].layer == s->opt.first + i;
	}
}

static int make_ones(struct stage *s, struct err *e)
{
	const struct model_config *c = &s->cfg;
	const int64_t n = c->full_head_dim > c->head_dim ? c->full_head_dim : c->head_dim;
	float one[MODEL_HEAD_DIM_MOST];
	for (int64_t i = 0; i < n; i++)
		one[i] = 1;
	TRY(param_init_plain(&s->ones, s->dev, "ones", 1, &n, DT_F32, false, e));
	return param_upload_f32(&s->ones, 0, n, one, e);
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
			     .blocks = model_blocks_of(cfg),
			     .front = o->first == 0,
			     .end = o->last == cfg->layers };
	struct stage_builder b = { .s = s, .src = src };
	size_t n = (size_t)(o->last - o->first),
	       most = n * s->blocks->params(cfg, true) + s->blocks->params(cfg, false);
	int rc = 0;
	dmem_init(&s->own_scratch, dev, 64 << 10);
	s->scratch = o->scratch ? o->scratch : &s->own_scratch;
	s->param = mem_array(most, sizeof *s->param);
	s->layer = mem_array(n, sizeof *s->layer);
	s->needs = mem_array(n + 1, sizeof *s->needs);
	if (!s->param || !s->layer || !s->needs) {
		rc = err_nomem(e, most * sizeof *s->param, "a stage");
		goto out;
	}
	TRYOUT(dev_alloc(dev, sizeof cfg->inv_freq, &s->inv_freq, e));
	TRYOUT(dev_upload(DEV_REF(s->inv_freq, 0), cfg->inv_freq, sizeof cfg->inv_freq, e));
	if (cfg->v_norm)
		TRYOUT(make_ones(s, e));
	TRYOUT(add_all(&b, e));
	mark_needs(s);
	for (size_t i = 0; i < s->nparam; i++)
		s->param[i].holder = deal_place_of(s->opt.deal, s->param[i].name);
	for (size_t i = 0; i < s->nparam; i++)
		if (!s->param[i].away)
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
	for (int64_t i = 0; s->layer && i < s->opt.last - s->opt.first; i++)
		for (enum linear l = 0; l < LIN_COUNT; l++)
			mem_free(s->layer[i].experts[l]);
	dev_free(s->inv_freq);
	param_release(&s->ones);
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
	dmem_init(&part->own_scratch, s->dev, 64 << 10);
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
